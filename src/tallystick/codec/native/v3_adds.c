/* Runs of plain ADDs of version 3 and of their responses: twins of codec/v3_adds.py, which has both forms. */

#include "codec.h"

#define PLAIN_ADD 0x02010000u
#define LENGTH_BYTES 4
#define KEY_BYTES 20
#define STORED_HEAD_BYTES 28 /* length, word, master key */
#define MIN_BODY 32
#define HEADER_BYTES 5 /* before the request id */
#define NUMBER_BYTES 9 /* of a positive int64, at most */
#define SIZE_BYTES 4   /* of a length, at most */
#define LONGEST_RESPONSE (LENGTH_BYTES + 2 + HEADER_BYTES + 10 + 5 + 4 + 10 + 1 + 10)

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

/* A plain ADD in a buffer. */
typedef struct {
    uint64_t txn;
    const uint8_t *key;
    const uint8_t *body;
    const uint8_t *body_stop;
    const uint8_t *stop;
    bool deferred;
} Add;

static bool skip(Cursor *cursor, const char *literal, Py_ssize_t count) {
    if (cursor->end - cursor->at < count || memcmp(cursor->at, literal, (size_t)count))
        return false;
    cursor->at += count;
    return true;
}

#define SKIP(cursor, literal) skip(cursor, literal, (Py_ssize_t)sizeof(literal) - 1)

/* A number of so many bytes at most, however long it is written. */
static bool read_number(Cursor *cursor, int most, uint64_t *number) {
    *number = 0;
    for (int at = 0; at < most && cursor->at < cursor->end; at++) {
        uint8_t byte = *cursor->at++;
        *number |= (uint64_t)(byte & 0x7F) << 7 * at;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static uint8_t *put_number(uint8_t *to, uint64_t number) {
    for (; number > 0x7F; number >>= 7)
        *to++ = (uint8_t)(number | 0x80);
    *to++ = (uint8_t)number;
    return to;
}

/* Whether what follows is a length of no more than the rest, up to stop, in the shortest form. */
static bool read_size(Cursor *cursor, const uint8_t *stop, uint64_t *size) {
    const uint8_t *start = cursor->at;
    uint8_t shortest[10];
    if (!read_number(cursor, SIZE_BYTES, size) || stop < cursor->at || *size > (uint64_t)(stop - cursor->at))
        return false;
    return put_number(shortest, *size) - shortest == cursor->at - start;
}

/* Whether what follows is the length of all the rest, up to stop. */
static bool skip_rest_size(Cursor *cursor, const uint8_t *stop) {
    uint64_t size;
    return read_size(cursor, stop, &size) && size == (uint64_t)(stop - cursor->at);
}

/* Whether what follows is a body behind its length, and nothing up to the end of the ADD but what makes it deferred. */
static bool read_body(Cursor *cursor, Add *add) {
    uint64_t size;
    if (!read_size(cursor, add->stop, &size) || size < MIN_BODY)
        return false;
    add->body = cursor->at;
    Cursor rest = {add->body + size, add->stop};
    add->body_stop = rest.at;
    add->deferred = rest.at < rest.end;
    return !add->deferred || (SKIP(&rest, "\x28\x01") && rest.at == rest.end);
}

/* Returns false if there is no plain ADD, or not a whole one. */
static bool read_add(const uint8_t *start, const uint8_t *end, int64_t max_body, Add *add) {
    if (end - start < LENGTH_BYTES + 2)
        return false;
    int64_t size = read_u32(start);
    if (size > end - start - LENGTH_BYTES || size > max_body)
        return false;
    Cursor cursor = {start + LENGTH_BYTES + 2, end};
    uint64_t ledger, entry;
    add->stop = start + LENGTH_BYTES + size;
    if (start[LENGTH_BYTES] != 0x0a || !SKIP(&cursor, "\x08\x03\x10\x02\x18") ||
        !read_number(&cursor, NUMBER_BYTES, &add->txn) ||
        cursor.at - start != LENGTH_BYTES + 2 + start[LENGTH_BYTES + 1] || !SKIP(&cursor, "\xaa\x06") ||
        !skip_rest_size(&cursor, add->stop) || !SKIP(&cursor, "\x08") ||
        !read_number(&cursor, NUMBER_BYTES, &ledger) || !SKIP(&cursor, "\x10") ||
        !read_number(&cursor, NUMBER_BYTES, &entry) || !SKIP(&cursor, "\x1a\x14") || end - cursor.at < KEY_BYTES)
        return false;
    add->key = cursor.at;
    cursor.at += KEY_BYTES;
    if (!SKIP(&cursor, "\x22") || !read_body(&cursor, add))
        return false;
    return read_u64(add->body) == ledger && read_u64(add->body + 8) == entry;
}

/* The frames as they are stored; NULL with an exception set. */
static PyObject *stored_frames(const uint8_t *frame, const uint8_t *end, Py_ssize_t count, Py_ssize_t bytes,
                               PyObject *txn_ids) {
    PyObject *stored = PyBytes_FromStringAndSize(NULL, bytes);
    uint8_t *to = stored == NULL ? NULL : (uint8_t *)PyBytes_AsString(stored);
    for (Py_ssize_t at = 0; stored != NULL && at < count; at++) {
        Add add;
        if (!read_add(frame, end, INT64_MAX, &add) || !put(txn_ids, at, PyLong_FromUnsignedLongLong(add.txn))) {
            Py_CLEAR(stored);
            break;
        }
        size_t size = (size_t)(add.body_stop - add.body);
        write_u32(to, (uint32_t)(STORED_HEAD_BYTES - LENGTH_BYTES + size));
        write_u32(to + 4, PLAIN_ADD);
        memcpy(to + 8, add.key, KEY_BYTES);
        memcpy(to + STORED_HEAD_BYTES, add.body, size);
        to += STORED_HEAD_BYTES + size;
        frame = add.stop;
    }
    return stored;
}

PyObject *scan_v3_adds(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_v3_adds", {"buffer", "start", "end", "max_body"}, 4, 4};
    PyObject *bound[4], *adds = NULL, *type = imported(module, V3_ADD_RUN);
    int64_t max_body;
    Region region;
    if (type == NULL || !bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[3], &max_body) ||
        !open_region(&region, bound[0], bound[1], bound[2]))
        return NULL;
    const uint8_t *end = region.bytes + region.end, *first = region.bytes + region.start, *frame = first;
    Py_ssize_t count = 0, bytes = 0;
    bool deferred = false;
    Add add;
    for (; region.start < region.end && read_add(frame, end, max_body, &add); count++) {
        if (count && add.deferred != deferred)
            break;
        deferred = add.deferred;
        frame = add.stop; /* its stored frame is as long as its body and a head, which is shorter than what was read */
        bytes += STORED_HEAD_BYTES + (add.body_stop - add.body);
    }
    PyObject *txn_ids = PyList_New(count), *run = NULL;
    PyObject *stored = txn_ids == NULL ? NULL : stored_frames(first, end, count, bytes, txn_ids);
    close_region(&region);
    if (stored != NULL)
        run = add_run(module, (const uint8_t *)PyBytes_AsString(stored), 0, count);
    if (run != NULL)
        adds = PyObject_CallFunctionObjArgs(type, txn_ids, PyTuple_GetItem(run, 0), stored,
                                            deferred ? Py_True : Py_False, NULL);
    Py_XDECREF(txn_ids);
    Py_XDECREF(stored);
    Py_XDECREF(run);
    return with_position(adds, region.start + (frame - first));
}

static uint8_t *put_response(uint8_t *to, uint64_t txn, uint64_t ledger, uint64_t entry) {
    static const uint8_t HEADER[] = {0x08, 3, 0x10, 2, 0x18}, RESULT[] = {0x10, 0, 0xaa, 0x06}, CODE[] = {0x08, 0, 0x10};
    uint8_t *frame = to, *size, *start;
    to += LENGTH_BYTES;
    *to++ = 0x0a;
    size = to++;
    start = to;
    memcpy(to, HEADER, sizeof HEADER);
    to = put_number(to + sizeof HEADER, txn);
    *size = (uint8_t)(to - start);
    memcpy(to, RESULT, sizeof RESULT);
    size = to + sizeof RESULT;
    start = to = size + 1;
    memcpy(to, CODE, sizeof CODE);
    to = put_number(to + sizeof CODE, ledger);
    *to++ = 0x18;
    to = put_number(to, entry);
    *size = (uint8_t)(to - start);
    write_u32(frame, (uint32_t)(to - frame - LENGTH_BYTES));
    return to;
}

PyObject *ack_v3_adds(ARGUMENTS) {
    static const Signature SIGNATURE = {"ack_v3_adds", {"txn_ids", "ledgers", "entries"}, 3, 3};
    PyObject *bound[3], *responses = NULL;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    bool good = PyList_Check(bound[0]) && PyList_Check(bound[1]) && PyList_Check(bound[2]);
    Py_ssize_t count = good ? PyList_Size(bound[0]) : 0;
    good = good && PyList_Size(bound[1]) == count && PyList_Size(bound[2]) == count &&
           count <= PY_SSIZE_T_MAX / LONGEST_RESPONSE;
    uint8_t *start = good ? PyMem_Malloc(count ? (size_t)count * LONGEST_RESPONSE : 1) : NULL, *to = start;
    good = start != NULL;
    for (Py_ssize_t at = 0; good && at < count; at++) {
        int64_t numbers[3];
        for (int column = 0; good && column < 3; column++) {
            PyObject *number = PyList_GetItem(bound[column], at);
            good = number != NULL && PyLong_Check(number) && to_int64(number, &numbers[column]);
        }
        if (good)
            to = put_response(to, (uint64_t)numbers[0], (uint64_t)numbers[1], (uint64_t)numbers[2]);
    }
    if (good)
        responses = PyBytes_FromStringAndSize((const char *)start, to - start);
    PyMem_Free(start);
    if (good)
        return responses;
    PyErr_Clear();
    return call_reference(module, &SIGNATURE, bound);
}
