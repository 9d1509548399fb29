/* Stored frames of a bookie: twins of codec/stored.py, which has both forms. */

#include "codec.h"

#define LENGTH_BYTES 4
#define PREFIX_BYTES 28 /* before an entry */
#define IDS_AT 12       /* in a response */
#define IDS_BYTES 16
#define PLAIN_ADD 0x02010000u
#define PLAIN_READ 0x02020000u

/* Where each frame is in its buffer: held until close_adds. */
typedef struct {
    Py_buffer data, bounds;
    Py_ssize_t start, stop;
} Adds;

static void close_adds(Adds *adds) {
    PyBuffer_Release(&adds->bounds);
    PyBuffer_Release(&adds->data);
}

/* Whether these are plain adds, one after another, as long as they say; there is one at least. */
static bool are_adds(const Adds *adds) {
    if (adds->start < 0 || adds->stop <= adds->start ||
        adds->stop >= adds->bounds.len / (Py_ssize_t)sizeof(int64_t))
        return false;
    const uint8_t *bytes = adds->data.buf;
    int64_t low = number_at(&adds->bounds, adds->start);
    if (low < 0 || low > adds->data.len)
        return false;
    for (Py_ssize_t at = adds->start + 1; at <= adds->stop; at++) {
        int64_t high = number_at(&adds->bounds, at);
        if (high < low || high > adds->data.len || high - low < PREFIX_BYTES + IDS_BYTES ||
            read_u32(bytes + low) != (uint64_t)(high - low - LENGTH_BYTES) ||
            read_u32(bytes + low + LENGTH_BYTES) != PLAIN_ADD)
            return false;
        low = high;
    }
    return true;
}

/* Returns false, perhaps with an exception set, if anything is not as callers have it; nothing is held then. */
static bool open_adds(Adds *adds, PyObject *data, PyObject *bounds) {
    if (PyObject_GetBuffer(data, &adds->data, PyBUF_SIMPLE) < 0)
        return false;
    if (!open_column(&adds->bounds, bounds)) {
        PyBuffer_Release(&adds->data);
        return false;
    }
    if (are_adds(adds))
        return true;
    close_adds(adds);
    return false;
}

static Py_ssize_t bytes_of(const Adds *adds) {
    return (Py_ssize_t)(number_at(&adds->bounds, adds->stop) - number_at(&adds->bounds, adds->start));
}

/* As many bytes. */
static void put_responses(const Adds *adds, uint8_t *to) {
    Py_ssize_t first = (Py_ssize_t)number_at(&adds->bounds, adds->start);
    memcpy(to, (const uint8_t *)adds->data.buf + first, (size_t)bytes_of(adds));
    for (Py_ssize_t at = adds->start; at < adds->stop; at++) {
        uint8_t *frame = to + ((Py_ssize_t)number_at(&adds->bounds, at) - first);
        write_u32(frame + LENGTH_BYTES, PLAIN_READ);
        write_u32(frame + 2 * LENGTH_BYTES, 0);
        memcpy(frame + IDS_AT, frame + PREFIX_BYTES, IDS_BYTES);
    }
}

PyObject *responses_of_adds(ARGUMENTS) {
    static const Signature SIGNATURE = {"responses_of_adds", {"data", "bounds", "start", "stop"}, 4, 4};
    PyObject *bound[4];
    int64_t start, stop;
    Adds adds;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[2], &start) ||
        !to_int64(bound[3], &stop))
        return NULL;
    adds.start = (Py_ssize_t)start, adds.stop = (Py_ssize_t)stop;
    if (!open_adds(&adds, bound[0], bound[1])) {
        PyErr_Clear();
        return call_reference(module, &SIGNATURE, bound);
    }
    PyObject *responses = PyBytes_FromStringAndSize(NULL, bytes_of(&adds));
    if (responses != NULL)
        put_responses(&adds, (uint8_t *)PyBytes_AsString(responses));
    close_adds(&adds);
    return responses;
}

/* The runs of a call, which are held until close_runs, and all that they have together. */
typedef struct {
    Adds *adds;
    Py_buffer *entries;
    Py_ssize_t runs, count, bytes;
} Runs;

static void close_runs(Runs *runs) {
    for (Py_ssize_t at = 0; at < runs->runs; at++) {
        close_adds(&runs->adds[at]);
        PyBuffer_Release(&runs->entries[at]);
    }
    PyMem_Free(runs->adds);
    PyMem_Free(runs->entries);
}

/* Takes one run, which has bounds for its entries and no more. Returns false as open_adds does. */
static bool open_run(Runs *runs, PyObject *run) {
    Py_buffer *entries = &runs->entries[runs->runs];
    Adds *adds = &runs->adds[runs->runs];
    if (!PyTuple_Check(run) || PyTuple_Size(run) != 3 || !open_column(entries, PyTuple_GetItem(run, 0)))
        return false;
    adds->start = 0, adds->stop = entries->len / (Py_ssize_t)sizeof(int64_t);
    if (open_adds(adds, PyTuple_GetItem(run, 2), PyTuple_GetItem(run, 1))) {
        if (adds->bounds.len / (Py_ssize_t)sizeof(int64_t) == adds->stop + 1 &&
            bytes_of(adds) <= PY_SSIZE_T_MAX - runs->bytes) {
            runs->runs++, runs->count += adds->stop, runs->bytes += bytes_of(adds);
            return true;
        }
        close_adds(adds);
    }
    PyBuffer_Release(entries);
    return false;
}

static bool open_runs(Runs *runs, PyObject *each) {
    Py_ssize_t count = PyTuple_Size(each);
    memset(runs, 0, sizeof *runs);
    runs->adds = PyMem_Calloc((size_t)count + 1, sizeof *runs->adds);
    runs->entries = PyMem_Calloc((size_t)count + 1, sizeof *runs->entries);
    bool good = runs->adds != NULL && runs->entries != NULL;
    while (good && runs->runs < count)
        good = open_run(runs, PyTuple_GetItem(each, runs->runs));
    if (!good)
        close_runs(runs);
    return good;
}

/* NULL with an exception set. */
static PyObject *encode_runs(PyObject *module, const Runs *runs) {
    PyObject *frames = PyBytes_FromStringAndSize(NULL, runs->bytes), *result = NULL;
    int64_t *entries = PyMem_Malloc(((size_t)runs->count + 1) * sizeof *entries);
    int64_t *starts = PyMem_Malloc(((size_t)runs->count + 1) * sizeof *starts);
    Py_ssize_t place = 0, bytes = 0;
    if (entries == NULL || starts == NULL)
        PyErr_NoMemory();
    bool good = frames != NULL && entries != NULL && starts != NULL;
    for (Py_ssize_t at = 0; good && at < runs->runs; at++) {
        const Adds *adds = &runs->adds[at];
        put_responses(adds, (uint8_t *)PyBytes_AsString(frames) + bytes);
        memcpy(entries + place, runs->entries[at].buf, (size_t)runs->entries[at].len);
        for (Py_ssize_t frame = 0; frame < adds->stop; frame++)
            starts[place++] = bytes + (number_at(&adds->bounds, frame) - number_at(&adds->bounds, 0));
        bytes += bytes_of(adds);
    }
    PyObject *ids = good ? number_array(module, 'q', entries, runs->count) : NULL;
    PyObject *offsets = ids == NULL ? NULL : number_array(module, 'Q', starts, runs->count);
    if (offsets != NULL)
        result = PyTuple_Pack(3, ids, offsets, frames);
    PyMem_Free(entries);
    PyMem_Free(starts);
    Py_XDECREF(ids);
    Py_XDECREF(offsets);
    Py_XDECREF(frames);
    return result;
}

PyObject *responses_of_runs(ARGUMENTS) {
    static const Signature SIGNATURE = {"responses_of_runs", {"runs"}, 1, 1};
    PyObject *bound[1], *result = NULL;
    Runs runs;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    PyObject *each = PyList_Check(bound[0]) ? PySequence_Tuple(bound[0]) : NULL;
    bool good = each != NULL && open_runs(&runs, each);
    if (good) {
        result = encode_runs(module, &runs);
        close_runs(&runs);
    }
    Py_XDECREF(each);
    if (good)
        return result;
    PyErr_Clear();
    return call_reference(module, &SIGNATURE, bound);
}
