/* Members of batches: twin of codec/uniform_records.py. */

#include "codec.h"

#define FEW 16 /* of fewer no batch is uniform */
#define HEAD_BYTES 20
#define FLAG_AT 12
#define BODY_SIZE_AT 16
#define MAX_SHORT 0x7FFF

/* How many members like the first fill the data; 0 if any differs. */
static Py_ssize_t count_members(const uint8_t *data, Py_ssize_t count, int64_t *size, int64_t *properties_size) {
    if (count < FEW * HEAD_BYTES)
        return 0;
    *size = read_u32(data);
    *properties_size = *size - HEAD_BYTES - (int64_t)read_u32(data + BODY_SIZE_AT) - 2;
    if (*properties_size < 0 || *properties_size > MAX_SHORT || count / FEW < *size || count % *size)
        return 0;
    for (const uint8_t *member = data, *end = data + count; member < end; member += *size)
        if (memcmp(member, data, HEAD_BYTES) || read_u16(member + *size - *properties_size - 2) != *properties_size)
            return 0;
    return count / *size;
}

static PyObject *member_of(PyObject *flag, const uint8_t *member, int64_t size, int64_t properties_size) {
    const char *start = (const char *)member;
    PyObject *body = PyBytes_FromStringAndSize(start + HEAD_BYTES, size - HEAD_BYTES - 2 - properties_size);
    PyObject *properties = PyBytes_FromStringAndSize(start + size - properties_size, properties_size), *content = NULL;
    if (body != NULL && properties != NULL)
        content = PyTuple_Pack(3, flag, body, properties);
    Py_XDECREF(body);
    Py_XDECREF(properties);
    return content;
}

PyObject *split_uniform_batch(ARGUMENTS) {
    static const Signature SIGNATURE = {"split_uniform_batch", {"data"}, 1, 1};
    PyObject *bound[1];
    char *start;
    Py_ssize_t count;
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || PyBytes_AsStringAndSize(bound[0], &start, &count) < 0)
        return NULL;
    const uint8_t *data = (const uint8_t *)start;
    int64_t size, properties_size;
    Py_ssize_t members = count_members(data, count, &size, &properties_size);
    if (!members) {
        Py_INCREF(Py_None);
        return Py_None;
    }
    PyObject *flag = PyLong_FromLong(read_i32(data + FLAG_AT)), *contents = flag == NULL ? NULL : PyList_New(members);
    for (Py_ssize_t at = 0; contents != NULL && at < members; at++)
        if (!put(contents, at, member_of(flag, data + at * size, size, properties_size)))
            Py_CLEAR(contents);
    Py_XDECREF(flag);
    return contents;
}
