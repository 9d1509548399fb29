/* Runs of ADDs of version 3, as a bookie reads them and as a client writes them: twins of codec/v3_adds.py. */

#include "v3.h"

#define ADD 2
#define PLAIN_ADD 0x02010000u
#define KEY_AT 8 /* in a stored frame: length, word, master key */
#define KEY_BYTES 20
#define LEDGER_BYTES 8
#define MIN_BODY 32

/* A plain ADD in a buffer. */
typedef struct {
    uint64_t txn;
    const uint8_t *key;
    const uint8_t *body;
    const uint8_t *body_stop;
    const uint8_t *stop;
    bool deferred;
} Add;

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
    if (end - start < LENGTH_BYTES)
        return false;
    int64_t size = read_u32(start);
    if (size > end - start - LENGTH_BYTES || size > max_body)
        return false;
    Cursor cursor = {start + LENGTH_BYTES, end};
    uint64_t ledger, entry;
    add->stop = start + LENGTH_BYTES + size;
    if (!skip_header(&cursor, ADD, &add->txn) || !SKIP(&cursor, "\xaa\x06") ||
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
        write_u32(to, (uint32_t)(PREFIX_BYTES - LENGTH_BYTES + size));
        write_u32(to + LENGTH_BYTES, PLAIN_ADD);
        memcpy(to + KEY_AT, add.key, KEY_BYTES);
        memcpy(to + PREFIX_BYTES, add.body, size);
        to += PREFIX_BYTES + size;
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
        bytes += PREFIX_BYTES + (add.body_stop - add.body);
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

/* What the ADDs of a call have in common. */
typedef struct {
    uint8_t ledger[2 + ANY_NUMBER_BYTES]; /* with the tags before and behind it */
    uint64_t ledger_bytes;
    uint8_t key[2 + KEY_BYTES + 1]; /* the same */
    uint8_t priority[1 + ANY_NUMBER_BYTES];
    uint64_t priority_bytes;
    uint8_t flags[1 + ANY_NUMBER_BYTES + 3];
    uint64_t flags_bytes;
    uint64_t first_txn;
} Adds;

/* An ADD in the making: its number, entry, the bytes of its body, and those of its message and frame from them. */
typedef struct {
    uint64_t txn, entry, body_bytes, message_bytes, frame_bytes;
} Sizes;

static void open_adds(Adds *adds, const uint8_t *frame, uint64_t priority, uint64_t write_flags, bool recovery) {
    uint8_t *to = adds->ledger;
    *to++ = 0x08;
    to = put_number(to, read_u64(frame + PREFIX_BYTES));
    *to++ = 0x10;
    adds->ledger_bytes = (uint64_t)(to - adds->ledger);
    adds->key[0] = 0x1a, adds->key[1] = KEY_BYTES, adds->key[2 + KEY_BYTES] = 0x22;
    memcpy(adds->key + 2, frame + KEY_AT, KEY_BYTES);
    adds->priority[0] = 0x20;
    adds->priority_bytes = priority ? (uint64_t)(put_number(adds->priority + 1, priority) - adds->priority) : 0;
    to = adds->flags;
    if (write_flags) {
        *to++ = 0x28;
        to = put_number(to, write_flags);
    }
    if (recovery)
        *to++ = 0xa0, *to++ = 0x06, *to++ = 0x01;
    adds->flags_bytes = (uint64_t)(to - adds->flags);
}

/* Returns false if its length cannot be said. */
static bool size_add(const Adds *adds, Py_ssize_t at, int64_t entry, Py_ssize_t body_bytes, Sizes *sizes) {
    sizes->txn = adds->first_txn + (uint64_t)at;
    sizes->entry = (uint64_t)entry;
    sizes->body_bytes = (uint64_t)body_bytes;
    sizes->message_bytes = adds->ledger_bytes + number_bytes(sizes->entry) + sizeof adds->key +
                           number_bytes(sizes->body_bytes) + sizes->body_bytes + adds->flags_bytes;
    sizes->frame_bytes = 2 + HEADER_BYTES + number_bytes(sizes->txn) + adds->priority_bytes + 2 +
                         number_bytes(sizes->message_bytes) + sizes->message_bytes;
    return sizes->frame_bytes <= UINT32_MAX;
}

/* What stands before a body. */
static uint8_t *put_add_head(const Adds *adds, const Sizes *sizes, uint8_t *to) {
    write_u32(to, (uint32_t)sizes->frame_bytes);
    to = put_header(to + LENGTH_BYTES, ADD, sizes->txn, adds->priority_bytes);
    memcpy(to, adds->priority, adds->priority_bytes);
    to += adds->priority_bytes;
    *to++ = 0xaa, *to++ = 0x06;
    to = put_number(to, sizes->message_bytes);
    memcpy(to, adds->ledger, adds->ledger_bytes);
    to = put_number(to + adds->ledger_bytes, sizes->entry);
    memcpy(to, adds->key, sizeof adds->key);
    return put_number(to + sizeof adds->key, sizes->body_bytes);
}

/* Whether heads and payloads may take turns here, and a head is anything but bytes: callers have no such ones. */
static bool has_strange_heads(PyObject *pieces, Py_ssize_t count) {
    bool are_bytes = true;
    for (Py_ssize_t at = 0; are_bytes && PyTuple_Size(pieces) == 2 * count && at < 2 * count; at += 2)
        are_bytes = PyBytes_Check(PyTuple_GetItem(pieces, at));
    return !are_bytes;
}

/* Whether each two pieces are the head and the payload of one frame. */
static bool are_in_turn(PyObject *pieces, Py_ssize_t count) {
    bool in_turn = PyTuple_Size(pieces) == 2 * count;
    for (Py_ssize_t at = 0; in_turn && at < 2 * count; at += 2) {
        PyObject *head = PyTuple_GetItem(pieces, at);
        Py_ssize_t head_bytes = PyBytes_Size(head), payload_bytes = PyObject_Size(PyTuple_GetItem(pieces, at + 1));
        in_turn = head_bytes >= PREFIX_BYTES + LEDGER_BYTES && payload_bytes >= 0 &&
                  (uint64_t)read_u32((const uint8_t *)PyBytes_AsString(head)) ==
                      (uint64_t)(head_bytes - LENGTH_BYTES) + (uint64_t)payload_bytes;
    }
    return in_turn;
}

/* The head of one frame of version 3 from that of a stored one, which have the same start of the body. */
static PyObject *head_of(const Adds *adds, Py_ssize_t at, int64_t entry, PyObject *head, PyObject *payload) {
    Py_ssize_t start_bytes = PyBytes_Size(head) - PREFIX_BYTES, payload_bytes = PyObject_Size(payload);
    Sizes sizes;
    if (payload_bytes < 0 || !size_add(adds, at, entry, start_bytes + payload_bytes, &sizes))
        return NULL;
    uint64_t before = LENGTH_BYTES + sizes.frame_bytes - sizes.body_bytes - adds->flags_bytes;
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)before + start_bytes);
    if (made != NULL) {
        uint8_t *to = put_add_head(adds, &sizes, (uint8_t *)PyBytes_AsString(made));
        memcpy(to, PyBytes_AsString(head) + PREFIX_BYTES, (size_t)start_bytes);
    }
    return made;
}

/* Heads, payloads as they are, and flags if there are any; NULL, perhaps with an exception set. */
static PyObject *requests_in_turn(const Adds *adds, const int64_t *entries, Py_ssize_t count, PyObject *pieces) {
    PyObject *parts = PyList_New(0);
    PyObject *flags = PyBytes_FromStringAndSize((const char *)adds->flags, (Py_ssize_t)adds->flags_bytes);
    bool good = parts != NULL && flags != NULL;
    for (Py_ssize_t at = 0; good && at < count; at++) {
        PyObject *payload = PyTuple_GetItem(pieces, 2 * at + 1);
        good = append(parts, head_of(adds, at, entries[at], PyTuple_GetItem(pieces, 2 * at), payload)) &&
               !PyList_Append(parts, payload) && (!adds->flags_bytes || !PyList_Append(parts, flags));
    }
    if (!good)
        Py_CLEAR(parts);
    Py_XDECREF(flags);
    return parts;
}

/* All in one part; NULL, perhaps with an exception set. The frames are whole. */
static PyObject *requests_together(const Adds *adds, const int64_t *entries, Py_ssize_t count, const uint8_t *frames) {
    const uint8_t *frame = frames;
    uint64_t bytes = 0;
    Sizes sizes;
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_ssize_t stored = LENGTH_BYTES + (Py_ssize_t)read_u32(frame);
        if (!size_add(adds, at, entries[at], stored - PREFIX_BYTES, &sizes))
            return NULL;
        bytes += LENGTH_BYTES + sizes.frame_bytes;
        frame += stored;
    }
    PyObject *requests = bytes > PY_SSIZE_T_MAX ? NULL : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (requests == NULL)
        return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AsString(requests);
    frame = frames;
    for (Py_ssize_t at = 0; at < count; at++) {
        size_add(adds, at, entries[at], LENGTH_BYTES + (Py_ssize_t)read_u32(frame) - PREFIX_BYTES, &sizes);
        to = put_add_head(adds, &sizes, to);
        memcpy(to, frame + PREFIX_BYTES, sizes.body_bytes);
        memcpy(to + sizes.body_bytes, adds->flags, adds->flags_bytes);
        to += sizes.body_bytes + adds->flags_bytes;
        frame += PREFIX_BYTES + sizes.body_bytes;
    }
    PyObject *parts = PyList_New(1);
    if (parts == NULL)
        Py_DECREF(requests);
    else if (!put(parts, 0, requests))
        Py_CLEAR(parts);
    return parts;
}

/* The one piece, or all of them joined. */
static PyObject *joined(PyObject *pieces) {
    PyObject *first = PyTuple_Size(pieces) ? PyTuple_GetItem(pieces, 0) : NULL, *empty, *all;
    if (PyTuple_Size(pieces) == 1) {
        Py_INCREF(first);
        return first;
    }
    empty = PyBytes_FromStringAndSize(NULL, 0);
    all = empty == NULL ? NULL : PyObject_CallMethod(empty, "join", "(O)", pieces);
    Py_XDECREF(empty);
    return all;
}

/* NULL, perhaps with an exception set, if anything is not as callers have it. */
static PyObject *encode_pieces(PyObject *const *bound, const int64_t *entries, Py_ssize_t count, PyObject *pieces) {
    int64_t first_txn, priority = 0, write_flags = 0;
    int recovery = bound[5] == NULL ? 0 : PyObject_IsTrue(bound[5]);
    Adds adds;
    if (recovery < 0 || has_strange_heads(pieces, count) || !to_int64(bound[0], &first_txn) ||
        (bound[3] != NULL && !to_int64(bound[3], &priority)) ||
        (bound[4] != NULL && !to_int64(bound[4], &write_flags)))
        return NULL;
    adds.first_txn = (uint64_t)first_txn;
    if (are_in_turn(pieces, count)) {
        const uint8_t *head = (const uint8_t *)PyBytes_AsString(PyTuple_GetItem(pieces, 0));
        open_adds(&adds, head, (uint64_t)priority, (uint64_t)write_flags, recovery);
        return requests_in_turn(&adds, entries, count, pieces);
    }
    PyErr_Clear();
    PyObject *frames = joined(pieces), *parts = NULL;
    Py_buffer view;
    if (frames != NULL && !PyObject_GetBuffer(frames, &view, PyBUF_SIMPLE)) {
        if (are_stored(&view, count, LEDGER_BYTES)) {
            open_adds(&adds, view.buf, (uint64_t)priority, (uint64_t)write_flags, recovery);
            parts = requests_together(&adds, entries, count, view.buf);
        }
        PyBuffer_Release(&view);
    }
    Py_XDECREF(frames);
    return parts;
}

PyObject *encode_v3_adds(ARGUMENTS) {
    static const Signature SIGNATURE = {
        "encode_v3_adds", {"first_txn", "entries", "pieces", "priority", "write_flags", "recovery"}, 3, 3};
    PyObject *bound[6], *parts = NULL, *pieces;
    Py_ssize_t count;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    int64_t *entries = int64s_of(bound[1], &count);
    if (entries != NULL && count && (PyList_Check(bound[2]) || PyTuple_Check(bound[2]))) {
        pieces = PySequence_Tuple(bound[2]); /* its own: nobody can change it meanwhile */
        if (pieces != NULL)
            parts = encode_pieces(bound, entries, count, pieces);
        Py_XDECREF(pieces);
    }
    PyMem_Free(entries);
    if (parts != NULL)
        return parts;
    PyErr_Clear();
    return call_reference(module, &SIGNATURE, bound);
}
