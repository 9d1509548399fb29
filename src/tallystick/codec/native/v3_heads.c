/* Runs of frames of version 3 that end with a ledger and an entry, READs and good responses to ADDs: twins of
   codec/v3_reads.py and codec/v3_adds.py. */

#include "v3.h"

#define LONGEST_FRAME (LENGTH_BYTES + 2 + HEADER_BYTES + 5 + 4 + 1 + 3 * ANY_NUMBER_BYTES)
#define MOST_FRAMES ((PY_SSIZE_T_MAX - 1) / LONGEST_FRAME)

typedef struct {
    const char *before; /* between the header and the one byte of the message's length */
    Py_ssize_t before_bytes;
    const char *tag; /* of the ledger, and what is before it */
    Py_ssize_t tag_bytes;
    char entry_tag;
    char operation;
} Form;

static const Form READ = {"\xa2\x06", 2, "\x08", 1, 0x10, 1};
static const Form GOOD_ADD = {"\x10\x00\xaa\x06", 4, "\x08\x00\x10", 3, 0x18, 2};

typedef struct {
    uint64_t txn, ledger, entry;
    const uint8_t *stop;
} Head;

static bool read_head(const Form *form, const uint8_t *start, const uint8_t *end, Head *head) {
    if (end - start < LENGTH_BYTES || start[0] || start[1] || start[2])
        return false;
    Cursor cursor = {start + LENGTH_BYTES, end};
    if (!skip_header(&cursor, form->operation, &head->txn) || !skip(&cursor, form->before, form->before_bytes) ||
        cursor.at == end)
        return false;
    const uint8_t *message = ++cursor.at;
    if (!skip(&cursor, form->tag, form->tag_bytes) || !read_number(&cursor, NUMBER_BYTES, &head->ledger) ||
        !skip(&cursor, &form->entry_tag, 1) || !read_number(&cursor, NUMBER_BYTES, &head->entry))
        return false;
    head->stop = cursor.at;
    return start[3] == head->stop - start - LENGTH_BYTES && message[-1] == head->stop - message;
}

static uint8_t *put_head(const Form *form, uint8_t *frame, uint64_t txn, uint64_t ledger, uint64_t entry) {
    uint8_t *to = put_header(frame + LENGTH_BYTES, form->operation, txn, 0);
    memcpy(to, form->before, (size_t)form->before_bytes);
    uint8_t *message = to + form->before_bytes + 1;
    memcpy(message, form->tag, (size_t)form->tag_bytes);
    to = put_number(message + form->tag_bytes, ledger);
    *to++ = (uint8_t)form->entry_tag;
    to = put_number(to, entry);
    message[-1] = (uint8_t)(to - message);
    write_u32(frame, (uint32_t)(to - frame - LENGTH_BYTES));
    return to;
}

/* The frames from the start of a region on, which are the caller's to release with PyMem_Free; and where they end. NULL
   with an exception set. */
static Head *heads_of(const Form *form, const Region *region, Py_ssize_t *count, Py_ssize_t *position) {
    Py_ssize_t room = 64;
    Head *heads = PyMem_Malloc((size_t)room * sizeof *heads);
    const uint8_t *frame = region->bytes + region->start, *end = region->bytes + region->end;
    *count = 0, *position = region->start;
    while (heads != NULL && *position < region->end && read_head(form, frame, end, &heads[*count])) {
        *position += heads[*count].stop - frame;
        frame = heads[*count].stop;
        if (++*count == room) { /* a frame has more bytes than half of this, so that it does not overflow */
            Head *more = PyMem_Realloc(heads, 2 * (size_t)room * sizeof *heads);
            if (more == NULL)
                PyMem_Free(heads);
            heads = more, room *= 2;
        }
    }
    if (heads == NULL)
        PyErr_NoMemory();
    return heads;
}

typedef enum { TXN, LEDGER, ENTRY } Column;

/* A list; NULL with an exception set. */
static PyObject *column_of(const Head *heads, Py_ssize_t count, Column column) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t at = 0; list != NULL && at < count; at++) {
        const Head *head = &heads[at];
        uint64_t number = column == TXN ? head->txn : column == LEDGER ? head->ledger : head->entry;
        if (!put(list, at, PyLong_FromUnsignedLongLong(number)))
            Py_CLEAR(list);
    }
    return list;
}

PyObject *scan_v3_acks(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_v3_acks", {"buffer", "start", "end"}, 3, 3};
    PyObject *bound[3], *columns[3] = {NULL, NULL, NULL}, *result = NULL;
    Region region;
    Py_ssize_t count, position;
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !open_region(&region, bound[0], bound[1], bound[2]))
        return NULL;
    Head *heads = heads_of(&GOOD_ADD, &region, &count, &position);
    close_region(&region);
    bool good = heads != NULL;
    for (int column = TXN; good && column <= ENTRY; column++)
        good = (columns[column] = column_of(heads, count, (Column)column)) != NULL;
    if (good)
        result = Py_BuildValue("(OOOn)", columns[TXN], columns[LEDGER], columns[ENTRY], position);
    for (int column = TXN; column <= ENTRY; column++)
        Py_XDECREF(columns[column]);
    PyMem_Free(heads);
    return result;
}

/* (ledger, entries) of each run of ascending entries; NULL with an exception set. */
static PyObject *runs_of(PyObject *module, const Head *heads, Py_ssize_t count) {
    PyObject *runs = PyList_New(0);
    int64_t *entries = PyMem_Malloc(count ? (size_t)count * sizeof *entries : 1);
    if (entries == NULL) {
        PyErr_NoMemory();
        Py_CLEAR(runs);
    }
    for (Py_ssize_t at = 0, first = 0; runs != NULL && at < count; at++) {
        entries[at] = (int64_t)heads[at].entry;
        if (at + 1 < count && heads[at + 1].ledger == heads[at].ledger && heads[at + 1].entry > heads[at].entry)
            continue;
        PyObject *run = number_array(module, 'q', entries + first, at + 1 - first);
        if (run == NULL || !append(runs, Py_BuildValue("(KN)", (unsigned long long)heads[at].ledger, run)))
            Py_CLEAR(runs);
        first = at + 1;
    }
    PyMem_Free(entries);
    return runs;
}

PyObject *scan_v3_read_requests(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_v3_read_requests", {"buffer", "start", "end"}, 3, 3};
    PyObject *bound[3], *txn_ids = NULL, *runs = NULL;
    Region region;
    Py_ssize_t count, position;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !open_region(&region, bound[0], bound[1], bound[2]))
        return NULL;
    Head *heads = heads_of(&READ, &region, &count, &position);
    close_region(&region);
    if (heads != NULL && (txn_ids = column_of(heads, count, TXN)) != NULL)
        runs = runs_of(module, heads, count);
    PyMem_Free(heads);
    PyObject *result = runs == NULL ? NULL : Py_BuildValue("(OOn)", txn_ids, runs, position);
    Py_XDECREF(txn_ids);
    Py_XDECREF(runs);
    return result;
}

PyObject *ack_v3_adds(ARGUMENTS) {
    static const Signature SIGNATURE = {"ack_v3_adds", {"txn_ids", "ledgers", "entries"}, 3, 3};
    PyObject *bound[3], *responses = NULL;
    int64_t *columns[3] = {NULL, NULL, NULL};
    Py_ssize_t counts[3];
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    bool good = true;
    for (int column = TXN; good && column <= ENTRY; column++) {
        columns[column] = int64s_of(bound[column], &counts[column]);
        good = columns[column] != NULL && counts[column] == counts[TXN] && counts[column] <= MOST_FRAMES;
    }
    uint8_t *start = good ? PyMem_Malloc((size_t)counts[TXN] * LONGEST_FRAME + 1) : NULL, *to = start;
    for (Py_ssize_t at = 0; start != NULL && at < counts[TXN]; at++)
        to = put_head(&GOOD_ADD, to, (uint64_t)columns[TXN][at], (uint64_t)columns[LEDGER][at],
                      (uint64_t)columns[ENTRY][at]);
    if (start != NULL)
        responses = PyBytes_FromStringAndSize((const char *)start, to - start);
    PyMem_Free(start);
    for (int column = TXN; column <= ENTRY; column++)
        PyMem_Free(columns[column]);
    if (start != NULL)
        return responses;
    PyErr_Clear();
    return call_reference(module, &SIGNATURE, bound);
}

PyObject *encode_v3_reads(ARGUMENTS) {
    static const Signature SIGNATURE = {"encode_v3_reads", {"first_txn", "ledger", "entries"}, 3, 3};
    PyObject *bound[3], *requests = NULL;
    int64_t first, ledger, *entries = NULL;
    Py_ssize_t count = 0;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    if (PyLong_Check(bound[0]) && PyLong_Check(bound[1]) && to_int64(bound[0], &first) && to_int64(bound[1], &ledger))
        entries = int64s_of(bound[2], &count);
    bool good = entries != NULL && count <= MOST_FRAMES;
    uint8_t *start = good ? PyMem_Malloc((size_t)count * LONGEST_FRAME + 1) : NULL, *to = start;
    for (Py_ssize_t at = 0; start != NULL && at < count; at++)
        to = put_head(&READ, to, (uint64_t)first + (uint64_t)at, (uint64_t)ledger, (uint64_t)entries[at]);
    if (start != NULL)
        requests = PyBytes_FromStringAndSize((const char *)start, to - start);
    PyMem_Free(start);
    PyMem_Free(entries);
    if (start != NULL)
        return requests;
    PyErr_Clear();
    return call_reference(module, &SIGNATURE, bound);
}
