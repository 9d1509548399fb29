/* Good responses to READs of version 3, as a client reads and a bookie writes them: twins of codec/v3_reads.py. */

#include "v3.h"

#define READ 1
#define LEDGER_AT 12 /* in a stored frame */
#define ENTRY_AT 20

/* A good response in a buffer. */
typedef struct {
    uint64_t txn, entry;
    int64_t lac; /* -1: none */
    const uint8_t *body;
    Py_ssize_t body_bytes;
    const uint8_t *stop;
} Response;

/* Returns false if there is none with a body, or not a whole one. */
static bool read_response(const uint8_t *start, const uint8_t *end, Response *response) {
    if (end - start < LENGTH_BYTES || read_u32(start) > (uint64_t)(end - start - LENGTH_BYTES))
        return false;
    Cursor cursor = {start + LENGTH_BYTES, start + LENGTH_BYTES + read_u32(start)};
    uint64_t ledger, size, lac;
    response->stop = cursor.end;
    if (!skip_header(&cursor, READ, &response->txn) || !SKIP(&cursor, "\x10\x00\xa2\x06") ||
        !skip_rest_size(&cursor, response->stop) || !SKIP(&cursor, "\x08\x00\x10") ||
        !read_number(&cursor, NUMBER_BYTES, &ledger) || !SKIP(&cursor, "\x18") ||
        !read_number(&cursor, NUMBER_BYTES, &response->entry) || !SKIP(&cursor, "\x22") ||
        !read_number(&cursor, SIZE_BYTES, &size) || size > (uint64_t)(cursor.end - cursor.at))
        return false;
    response->body = cursor.at;
    response->body_bytes = (Py_ssize_t)size;
    response->lac = -1;
    cursor.at += size;
    if (cursor.at == cursor.end)
        return true;
    if (!SKIP(&cursor, "\x28") || !read_number(&cursor, ANY_NUMBER_BYTES, &lac))
        return false;
    response->lac = (int64_t)lac;
    return cursor.at == cursor.end;
}

/* Fills lists of so many places. Returns false with an exception set. */
static bool fill(const uint8_t *frame, const uint8_t *end, Py_ssize_t count, PyObject *txn_ids, PyObject *entries,
                 PyObject *data) {
    Response response;
    for (Py_ssize_t at = 0; at < count; at++, frame = response.stop)
        if (!read_response(frame, end, &response) || !put(txn_ids, at, PyLong_FromUnsignedLongLong(response.txn)) ||
            !put(entries, at, PyLong_FromUnsignedLongLong(response.entry)) ||
            !put(data, at, PyBytes_FromStringAndSize((const char *)response.body, response.body_bytes)))
            return false;
    return true;
}

PyObject *scan_v3_reads(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_v3_reads", {"buffer", "start", "end"}, 3, 3};
    PyObject *bound[3], *result = NULL;
    Region region;
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !open_region(&region, bound[0], bound[1], bound[2]))
        return NULL;
    const uint8_t *start = region.bytes + region.start, *end = region.bytes + region.end;
    Response response = {.stop = start};
    Py_ssize_t count = 0, position = region.start;
    int64_t max_lac = -1;
    for (; position < region.end && read_response(response.stop, end, &response); count++) {
        position = response.stop - region.bytes;
        max_lac = response.lac > max_lac ? response.lac : max_lac;
    }
    PyObject *txn_ids = PyList_New(count), *entries = PyList_New(count), *data = PyList_New(count);
    if (txn_ids != NULL && entries != NULL && data != NULL && fill(start, end, count, txn_ids, entries, data))
        result = Py_BuildValue("(OOOLn)", txn_ids, entries, data, (long long)max_lac, position);
    close_region(&region);
    Py_XDECREF(txn_ids);
    Py_XDECREF(entries);
    Py_XDECREF(data);
    return result;
}

/* What the responses of a call have in common. */
typedef struct {
    uint8_t start[4 + ANY_NUMBER_BYTES + 1]; /* of the message, up to the entry */
    uint64_t start_bytes;
    uint8_t lac[1 + ANY_NUMBER_BYTES];
    uint64_t lac_bytes;
} Responses;

/* A response in the making. */
typedef struct {
    uint64_t entry, body_bytes, message_bytes, frame_bytes;
} Sizes;

static void open_responses(Responses *responses, const uint8_t *frame, const int64_t *lac) {
    static const uint8_t START[] = {0x08, 0, 0x10};
    memcpy(responses->start, START, sizeof START);
    uint8_t *to = put_number(responses->start + sizeof START, read_u64(frame + LEDGER_AT));
    *to++ = 0x18;
    responses->start_bytes = (uint64_t)(to - responses->start);
    responses->lac[0] = 0x28;
    responses->lac_bytes = lac == NULL ? 0 : 1 + number_bytes((uint64_t)*lac);
    if (lac != NULL)
        put_number(responses->lac + 1, (uint64_t)*lac);
}

/* Of the response that a stored frame becomes. Returns false if its length cannot be said. */
static bool size_response(const Responses *responses, int64_t txn, const uint8_t *frame, Sizes *sizes) {
    sizes->entry = read_u64(frame + ENTRY_AT);
    sizes->body_bytes = (uint64_t)read_u32(frame) + LENGTH_BYTES - PREFIX_BYTES;
    sizes->message_bytes = responses->start_bytes + number_bytes(sizes->entry) + 1 + number_bytes(sizes->body_bytes) +
                           sizes->body_bytes + responses->lac_bytes;
    sizes->frame_bytes = 2 + HEADER_BYTES + number_bytes((uint64_t)txn) + 4 + number_bytes(sizes->message_bytes) +
                         sizes->message_bytes;
    return sizes->frame_bytes <= UINT32_MAX;
}

static uint8_t *put_response(const Responses *responses, int64_t txn, const uint8_t *frame, const Sizes *sizes,
                             uint8_t *to) {
    static const uint8_t RESULT[] = {0x10, 0, 0xa2, 0x06};
    write_u32(to, (uint32_t)sizes->frame_bytes);
    to = put_header(to + LENGTH_BYTES, READ, (uint64_t)txn, 0);
    memcpy(to, RESULT, sizeof RESULT);
    to = put_number(to + sizeof RESULT, sizes->message_bytes);
    memcpy(to, responses->start, responses->start_bytes);
    to = put_number(to + responses->start_bytes, sizes->entry);
    *to++ = 0x22;
    to = put_number(to, sizes->body_bytes);
    memcpy(to, frame + PREFIX_BYTES, sizes->body_bytes);
    memcpy(to + sizes->body_bytes, responses->lac, responses->lac_bytes);
    return to + sizes->body_bytes + responses->lac_bytes;
}

/* NULL, perhaps with an exception set. The frames are whole. */
static PyObject *encode_frames(const int64_t *txn_ids, Py_ssize_t count, const uint8_t *frames, const int64_t *lac) {
    Responses responses;
    Sizes sizes;
    uint64_t bytes = 0;
    const uint8_t *frame = frames;
    open_responses(&responses, frames, lac);
    for (Py_ssize_t at = 0; at < count; at++, frame += PREFIX_BYTES + sizes.body_bytes) {
        if (!size_response(&responses, txn_ids[at], frame, &sizes))
            return NULL;
        bytes += LENGTH_BYTES + sizes.frame_bytes;
    }
    PyObject *made = bytes > PY_SSIZE_T_MAX ? NULL : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    uint8_t *to = made == NULL ? NULL : (uint8_t *)PyBytes_AsString(made);
    frame = frames;
    for (Py_ssize_t at = 0; made != NULL && at < count; at++, frame += PREFIX_BYTES + sizes.body_bytes) {
        size_response(&responses, txn_ids[at], frame, &sizes);
        to = put_response(&responses, txn_ids[at], frame, &sizes, to);
    }
    return made;
}

PyObject *encode_v3_read_responses(ARGUMENTS) {
    static const Signature SIGNATURE = {"encode_v3_read_responses", {"txn_ids", "frames", "max_lac"}, 3, 3};
    PyObject *bound[3], *made = NULL;
    int64_t lac;
    Py_ssize_t count;
    Py_buffer view;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    int64_t *txn_ids = int64s_of(bound[0], &count);
    if (txn_ids != NULL && count && (bound[2] == Py_None || to_int64(bound[2], &lac)) &&
        !PyObject_GetBuffer(bound[1], &view, PyBUF_SIMPLE)) {
        if (are_stored(&view, count, 0))
            made = encode_frames(txn_ids, count, view.buf, bound[2] == Py_None ? NULL : &lac);
        PyBuffer_Release(&view);
    }
    PyMem_Free(txn_ids);
    if (made != NULL)
        return made;
    PyErr_Clear();
    return call_reference(module, &SIGNATURE, bound);
}
