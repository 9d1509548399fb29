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

/* The bytes of the response with an entry at this place of a piece; 0 if it is another one, or not whole. */
static Py_ssize_t response_at(const Py_buffer *piece, uint64_t start, int64_t ledger, int64_t entry) {
    if (start > (uint64_t)piece->len || (uint64_t)piece->len - start < PREFIX_BYTES)
        return 0;
    const uint8_t *bytes = (const uint8_t *)piece->buf + start;
    uint64_t size = (uint64_t)read_u32(bytes) + LENGTH_BYTES;
    if (read_i64(bytes + IDS_AT) != ledger || read_i64(bytes + IDS_AT + 8) != entry || size < PREFIX_BYTES ||
        size > (uint64_t)piece->len - start)
        return 0;
    return (Py_ssize_t)size;
}

typedef struct {
    const uint8_t *bytes;
    Py_ssize_t size;
} Response;

/* Entries, where they are, and the responses with them, in pieces that are held until the end. */
typedef struct {
    Py_buffer locations, entries;
    Py_buffer *pieces;
    Response *responses;
    Py_ssize_t most, count, pieces_count, bytes;
    int64_t ledger, max_bytes;
} Picking;

/* Picks from one piece. Returns 1 if it has all that it should and there is room for more, 0 if all ends with it; -1 if
   anything is not as callers have it, perhaps with an exception set. */
static int pick_from(Picking *picking, PyObject *piece) {
    int64_t count;
    if (!PyTuple_Check(piece) || PyTuple_Size(piece) != 3 || !to_int64(PyTuple_GetItem(piece, 2), &count))
        return -1;
    uint64_t begin = PyLong_AsUnsignedLongLong(PyTuple_GetItem(piece, 1));
    Py_buffer *data = &picking->pieces[picking->pieces_count];
    if (PyErr_Occurred() || count < 0 || count > picking->most - picking->count ||
        PyObject_GetBuffer(PyTuple_GetItem(piece, 0), data, PyBUF_SIMPLE) < 0)
        return -1;
    picking->pieces_count++;
    for (Py_ssize_t stop = picking->count + (Py_ssize_t)count; picking->count < stop; picking->count++) {
        uint64_t location = (uint64_t)number_at(&picking->locations, picking->count);
        int64_t entry = number_at(&picking->entries, picking->count);
        Py_ssize_t size = location < begin ? 0 : response_at(data, location - begin, picking->ledger, entry);
        if (!size || size > PY_SSIZE_T_MAX - picking->bytes ||
            (picking->count && picking->bytes + size > picking->max_bytes))
            return 0;
        picking->responses[picking->count] = (Response){(const uint8_t *)data->buf + (location - begin), size};
        picking->bytes += size;
    }
    return 1;
}

/* All that was picked, one after another, and how many. */
static PyObject *joined_responses(const Picking *picking) {
    PyObject *joined = PyBytes_FromStringAndSize(NULL, picking->bytes);
    if (joined == NULL)
        return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AsString(joined);
    for (Py_ssize_t at = 0; at < picking->count; to += picking->responses[at++].size)
        memcpy(to, picking->responses[at].bytes, (size_t)picking->responses[at].size);
    return Py_BuildValue("(Nn)", joined, picking->count);
}

/* NULL if anything is not as callers have it, perhaps with an exception set. */
static PyObject *pick(Picking *picking, PyObject *pieces) {
    Py_ssize_t count = PyTuple_Size(pieces);
    int more = 1;
    picking->pieces = PyMem_Calloc((size_t)count + 1, sizeof *picking->pieces);
    picking->responses = PyMem_Calloc((size_t)picking->most + 1, sizeof *picking->responses);
    if (picking->pieces == NULL || picking->responses == NULL)
        more = -1;
    for (Py_ssize_t at = 0; more > 0 && at < count; at++)
        more = pick_from(picking, PyTuple_GetItem(pieces, at));
    PyObject *result = more < 0 ? NULL : joined_responses(picking);
    while (picking->pieces_count)
        PyBuffer_Release(&picking->pieces[--picking->pieces_count]);
    PyMem_Free(picking->pieces);
    PyMem_Free(picking->responses);
    return result;
}

PyObject *picked_responses(ARGUMENTS) {
    static const Signature SIGNATURE = {
        "picked_responses", {"pieces", "locations", "ledger", "entries", "max_bytes"}, 5, 5};
    PyObject *bound[5], *result = NULL;
    Picking picking = {0};
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    if (!to_int64(bound[2], &picking.ledger) || !to_int64(bound[4], &picking.max_bytes) ||
        !open_column(&picking.locations, bound[1])) {
        PyErr_Clear();
        return call_reference(module, &SIGNATURE, bound);
    }
    if (!open_column(&picking.entries, bound[3])) {
        PyBuffer_Release(&picking.locations);
        PyErr_Clear();
        return call_reference(module, &SIGNATURE, bound);
    }
    Py_ssize_t bytes = Py_MIN(picking.locations.len, picking.entries.len);
    picking.most = bytes / (Py_ssize_t)sizeof(int64_t);
    PyObject *pieces = PySequence_Tuple(bound[0]); /* its own: nobody can change it meanwhile */
    if (pieces != NULL)
        result = pick(&picking, pieces);
    Py_XDECREF(pieces);
    PyBuffer_Release(&picking.entries);
    PyBuffer_Release(&picking.locations);
    if (result != NULL)
        return result;
    PyErr_Clear();
    return call_reference(module, &SIGNATURE, bound);
}
