/* Values that lie scattered in one buffer: twin of codec/spans.py. */

#include "codec.h"

/* Whole numbers of 64 bits, held until they are released. */
static bool open_column(Py_buffer *column, PyObject *object) {
    if (PyObject_GetBuffer(object, column, PyBUF_SIMPLE) < 0)
        return false;
    if (column->itemsize == sizeof(int64_t) && column->len % (Py_ssize_t)sizeof(int64_t) == 0)
        return true;
    PyErr_SetString(PyExc_ValueError, "a column has numbers of 64 bits");
    PyBuffer_Release(column);
    return false;
}

static int64_t number_at(const Py_buffer *column, Py_ssize_t at) {
    int64_t number;
    memcpy(&number, (const uint8_t *)column->buf + at * (Py_ssize_t)sizeof number, sizeof number); /* as it is aligned */
    return number;
}

/* Returns false for a value that is not inside its buffer. */
static bool crcs_of(const Py_buffer *data, const Py_buffer *offsets, const Py_buffer *sizes, int64_t *crcs,
                    Py_ssize_t count) {
    for (Py_ssize_t at = 0; at < count; at++) {
        int64_t offset = number_at(offsets, at), size = number_at(sizes, at);
        if (offset < 0 || offset > data->len || size < 0 || size > data->len - offset)
            return false;
        crcs[at] = crc32c_update(0, (const uint8_t *)data->buf + offset, (size_t)size);
    }
    return true;
}

PyObject *crc32c_of_spans(ARGUMENTS) {
    static const Signature SIGNATURE = {"crc32c_of_spans", {"data", "offsets", "sizes"}, 3, 3};
    PyObject *bound[3], *result = NULL;
    Py_buffer data, offsets, sizes;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) ||
        PyObject_GetBuffer(bound[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    if (!open_column(&offsets, bound[1]))
        goto no_offsets;
    if (!open_column(&sizes, bound[2]))
        goto no_sizes;
    Py_ssize_t count = offsets.len / (Py_ssize_t)sizeof(int64_t);
    int64_t *crcs = PyMem_Malloc(offsets.len ? (size_t)offsets.len : 1);
    if (crcs == NULL)
        PyErr_NoMemory();
    else if (offsets.len != sizes.len)
        PyErr_SetString(PyExc_ValueError, "there are as many offsets as sizes");
    else if (!crcs_of(&data, &offsets, &sizes, crcs, count))
        PyErr_SetString(PyExc_ValueError, "a value is not inside its buffer");
    else
        result = number_array(module, crcs, count);
    PyMem_Free(crcs);
    PyBuffer_Release(&sizes);
no_sizes:
    PyBuffer_Release(&offsets);
no_offsets:
    PyBuffer_Release(&data);
    return result;
}
