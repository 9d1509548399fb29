/* Values that lie scattered in one buffer: twin of codec/spans.py. */

#include "codec.h"

bool open_column(Py_buffer *column, PyObject *object) {
    if (PyObject_GetBuffer(object, column, PyBUF_SIMPLE) < 0)
        return false;
    if (column->itemsize == sizeof(int64_t) && column->len % (Py_ssize_t)sizeof(int64_t) == 0)
        return true;
    PyErr_SetString(PyExc_ValueError, "a column has numbers of 64 bits");
    PyBuffer_Release(column);
    return false;
}

/* Values in one buffer, held until close_spans. All of them are inside it. */
typedef struct {
    Py_buffer data, offsets, sizes;
    Py_ssize_t count;
} Spans;

static void close_spans(Spans *spans) {
    PyBuffer_Release(&spans->sizes);
    PyBuffer_Release(&spans->offsets);
    PyBuffer_Release(&spans->data);
}

static const uint8_t *value_of(const Spans *spans, Py_ssize_t at, size_t *size) {
    *size = (size_t)number_at(&spans->sizes, at);
    return (const uint8_t *)spans->data.buf + number_at(&spans->offsets, at);
}

static bool are_inside(const Spans *spans) {
    if (spans->offsets.len != spans->sizes.len) {
        PyErr_SetString(PyExc_ValueError, "there are as many offsets as sizes");
        return false;
    }
    for (Py_ssize_t at = 0; at < spans->count; at++) {
        int64_t offset = number_at(&spans->offsets, at), size = number_at(&spans->sizes, at);
        if (offset < 0 || offset > spans->data.len || size < 0 || size > spans->data.len - offset) {
            PyErr_SetString(PyExc_ValueError, "a value is not inside its buffer");
            return false;
        }
    }
    return true;
}

/* Returns false with an exception set. */
static bool open_spans(Spans *spans, PyObject *const *bound) {
    if (PyObject_GetBuffer(bound[0], &spans->data, PyBUF_SIMPLE) < 0)
        return false;
    if (!open_column(&spans->offsets, bound[1])) {
        PyBuffer_Release(&spans->data);
        return false;
    }
    if (!open_column(&spans->sizes, bound[2])) {
        PyBuffer_Release(&spans->offsets);
        PyBuffer_Release(&spans->data);
        return false;
    }
    spans->count = spans->offsets.len / (Py_ssize_t)sizeof(int64_t);
    if (are_inside(spans))
        return true;
    close_spans(spans);
    return false;
}

/* The checksums of the values. */
static PyObject *checksums(PyObject *module, PyObject *const *bound, Crc32 update) {
    PyObject *result = NULL;
    Spans spans;
    if (!open_spans(&spans, bound))
        return NULL;
    int64_t *crcs = PyMem_Malloc(spans.count ? (size_t)spans.count * sizeof *crcs : 1);
    if (crcs == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t at = 0; crcs != NULL && at < spans.count; at++) {
        size_t size;
        const uint8_t *value = value_of(&spans, at, &size);
        crcs[at] = update(0, value, size);
    }
    if (crcs != NULL)
        result = number_array(module, 'q', crcs, spans.count);
    PyMem_Free(crcs);
    close_spans(&spans);
    return result;
}

PyObject *crc32c_of_spans(ARGUMENTS) {
    static const Signature SIGNATURE = {"crc32c_of_spans", {"data", "offsets", "sizes"}, 3, 3};
    PyObject *bound[3];
    return bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) ? checksums(module, bound, crc32c_update) : NULL;
}

PyObject *crc32_of_spans(ARGUMENTS) {
    static const Signature SIGNATURE = {"crc32_of_spans", {"data", "offsets", "sizes"}, 3, 3};
    PyObject *bound[3];
    return bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) ? checksums(module, bound, crc32_update) : NULL;
}

PyObject *joined_spans(ARGUMENTS) {
    static const Signature SIGNATURE = {"joined_spans", {"data", "offsets", "sizes"}, 3, 3};
    PyObject *bound[3], *joined = NULL;
    Spans spans;
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !open_spans(&spans, bound))
        return NULL;
    size_t size, total = 0;
    bool fits = true;
    for (Py_ssize_t at = 0; fits && at < spans.count; at++, total += size) {
        value_of(&spans, at, &size);
        fits = size <= (size_t)PY_SSIZE_T_MAX - total;
    }
    joined = fits ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total) : PyErr_NoMemory();
    char *place = joined == NULL ? NULL : PyBytes_AsString(joined);
    for (Py_ssize_t at = 0; joined != NULL && at < spans.count; at++, place += size) {
        const uint8_t *value = value_of(&spans, at, &size);
        memcpy(place, value, size);
    }
    close_spans(&spans);
    return joined;
}
