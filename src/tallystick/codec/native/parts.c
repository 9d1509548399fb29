/* Bytes in parts: twins of codec/parts.py. */

#include "codec.h"

/* Each part of a list, tuple or other sequence in turn. Returns false with an exception set. */
typedef bool (*Take)(void *state, const uint8_t *bytes, Py_ssize_t count);

static bool each_part(PyObject *parts, Take take, void *state) {
    PyObject *each = PySequence_Tuple(parts); /* its own: nobody can change it meanwhile */
    bool good = each != NULL;
    for (Py_ssize_t at = 0, count = good ? PyTuple_Size(each) : 0; good && at < count; at++) {
        Py_buffer view;
        good = !PyObject_GetBuffer(PyTuple_GetItem(each, at), &view, PyBUF_SIMPLE);
        if (good) {
            good = take(state, view.buf, view.len);
            PyBuffer_Release(&view);
        }
    }
    Py_XDECREF(each);
    return good;
}

static bool take_crc(void *state, const uint8_t *bytes, Py_ssize_t count) {
    uint32_t *crc = state;
    *crc = crc32c_update(*crc, bytes, (size_t)count);
    return true;
}

PyObject *crc32c_of_parts(ARGUMENTS) {
    static const Signature SIGNATURE = {"crc32c_of_parts", {"parts", "crc"}, 2, 2};
    PyObject *bound[2];
    int64_t start;
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[1], &start))
        return NULL;
    if (start < 0 || start > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a CRC has 32 bits");
        return NULL;
    }
    uint32_t crc = (uint32_t)start;
    return each_part(bound[0], take_crc, &crc) ? PyLong_FromUnsignedLong(crc) : NULL;
}

typedef struct {
    uint8_t *memory;
    Py_ssize_t room, end;
} Copy;

static bool take_copy(void *state, const uint8_t *bytes, Py_ssize_t count) {
    Copy *copy = state;
    if (count > copy->room - copy->end) {
        PyErr_SetString(PyExc_ValueError, "there is no room for all parts");
        return false;
    }
    memmove(copy->memory + copy->end, bytes, (size_t)count); /* a part may be in that memory itself */
    copy->end += count;
    return true;
}

PyObject *copy_parts(ARGUMENTS) {
    static const Signature SIGNATURE = {"copy_parts", {"parts", "memory"}, 2, 2};
    PyObject *bound[2];
    Py_buffer memory;
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) ||
        PyObject_GetBuffer(bound[1], &memory, PyBUF_WRITABLE) < 0)
        return NULL;
    Copy copy = {memory.buf, memory.len, 0};
    bool good = each_part(bound[0], take_copy, &copy);
    PyBuffer_Release(&memory);
    return good ? PyLong_FromSsize_t(copy.end) : NULL;
}
