/* CommitLog records of an append: twin of codec/records.py, which has the layout. What it does not expect, the reference
   encodes or refuses.

   No code in Python runs between the first look at an argument and the last: so none of them changes or goes meanwhile,
   and what was counted holds when it is written. */

#include "records.h"

enum { TOPIC, QUEUE_ID, QUEUE_OFFSET, SYS_FLAG, BORN, BORN_HOST, RECONSUMED, CONTENTS, ROW_ITEMS };
enum { FLAG, BODY, PROPERTIES, CONTENT_ITEMS };

typedef struct {
    const uint8_t *start;
    Py_ssize_t count;
} Bytes;

typedef struct {
    int64_t flag;
    Bytes body, properties;
} Message;

/* Messages of one queue. */
typedef struct {
    Bytes topic, born_host;
    int64_t queue_id, queue_offset, sys_flag, born, reconsumed;
    Py_ssize_t count;
} Row;

typedef struct {
    Bytes store_host;
    int64_t offset, stored, size;
    Row *rows;
    Message *messages;
    Py_ssize_t row_count, message_count;
} Append;

static bool is_sequence(PyObject *object) { return PyList_Check(object) || PyTuple_Check(object); }

static Py_ssize_t count_of(PyObject *sequence) {
    return PyList_Check(sequence) ? PyList_Size(sequence) : PyTuple_Size(sequence);
}

/* Returns a borrowed reference. */
static PyObject *item_of(PyObject *sequence, Py_ssize_t at) {
    return PyList_Check(sequence) ? PyList_GetItem(sequence, at) : PyTuple_GetItem(sequence, at);
}

static bool read_int64(PyObject *object, int64_t *number) { return PyLong_Check(object) && to_int64(object, number); }

static bool read_int32(PyObject *object, int64_t *number) {
    return read_int64(object, number) && *number >= INT32_MIN && *number <= INT32_MAX;
}

static bool read_bytes(PyObject *object, Bytes *bytes) {
    char *start;
    if (!PyBytes_Check(object) || PyBytes_AsStringAndSize(object, &start, &bytes->count) < 0)
        return false;
    bytes->start = (const uint8_t *)start;
    return true;
}

static bool read_host(PyObject *object, Bytes *host) {
    return read_bytes(object, host) && (host->count == V4_HOST || host->count == V4_HOST + V6_EXTRA);
}

static bool read_body(PyObject *object, Bytes *body) {
    Py_buffer view;
    if (PyBytes_Check(object))
        return read_bytes(object, body);
    if ((!PyByteArray_Check(object) && !PyMemoryView_Check(object)) ||
        PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0)
        return false;
    body->start = view.buf;
    body->count = view.len;
    PyBuffer_Release(&view);
    return PyObject_Size(object) == body->count; /* else its items are not bytes */
}

static bool read_message(PyObject *content, Message *message) {
    return PyTuple_Check(content) && PyTuple_Size(content) == CONTENT_ITEMS &&
           read_int32(PyTuple_GetItem(content, FLAG), &message->flag) &&
           read_body(PyTuple_GetItem(content, BODY), &message->body) && message->body.count <= INT32_MAX &&
           read_bytes(PyTuple_GetItem(content, PROPERTIES), &message->properties) &&
           message->properties.count <= UINT16_MAX;
}

static bool read_row(PyObject *object, Row *row) {
    if (!PyTuple_Check(object) || PyTuple_Size(object) != ROW_ITEMS || !is_sequence(PyTuple_GetItem(object, CONTENTS)))
        return false;
    row->count = count_of(PyTuple_GetItem(object, CONTENTS));
    return read_bytes(PyTuple_GetItem(object, TOPIC), &row->topic) &&
           read_int32(PyTuple_GetItem(object, QUEUE_ID), &row->queue_id) &&
           read_int64(PyTuple_GetItem(object, QUEUE_OFFSET), &row->queue_offset) &&
           row->queue_offset <= INT64_MAX - row->count &&
           read_int32(PyTuple_GetItem(object, SYS_FLAG), &row->sys_flag) &&
           read_int64(PyTuple_GetItem(object, BORN), &row->born) &&
           read_host(PyTuple_GetItem(object, BORN_HOST), &row->born_host) &&
           read_int32(PyTuple_GetItem(object, RECONSUMED), &row->reconsumed);
}

static int64_t fixed_bytes(const Append *append, const Row *row) {
    return FIXED_BYTES + row->born_host.count + append->store_host.count + row->topic.count;
}

/* Returns false if there is anything of which only the reference knows what becomes of it. */
static bool read_append(PyObject *const *bound, Append *append) {
    if (!is_sequence(bound[0]) || !read_int64(bound[1], &append->offset) || !read_int64(bound[2], &append->stored) ||
        !read_host(bound[3], &append->store_host))
        return false;
    append->row_count = count_of(bound[0]);
    if ((append->rows = PyMem_Calloc((size_t)append->row_count, sizeof *append->rows)) == NULL)
        return false;
    for (Py_ssize_t at = 0; at < append->row_count; at++) {
        if (!read_row(item_of(bound[0], at), &append->rows[at]))
            return false;
        append->message_count += append->rows[at].count;
    }
    if ((append->messages = PyMem_Calloc((size_t)append->message_count, sizeof *append->messages)) == NULL)
        return false;
    Message *message = append->messages;
    for (Py_ssize_t at = 0; at < append->row_count; at++) {
        PyObject *contents = PyTuple_GetItem(item_of(bound[0], at), CONTENTS);
        int64_t fixed = fixed_bytes(append, &append->rows[at]);
        for (Py_ssize_t number = 0; number < append->rows[at].count; number++, message++) {
            if (!read_message(item_of(contents, number), message))
                return false;
            int64_t size = fixed + message->body.count + message->properties.count;
            if (size > UINT32_MAX || size > PY_SSIZE_T_MAX - append->size)
                return false;
            append->size += size;
        }
    }
    return append->offset <= INT64_MAX - append->size;
}

static uint8_t *put_bytes(uint8_t *to, const Bytes *bytes) {
    if (bytes->count)
        memcpy(to, bytes->start, (size_t)bytes->count);
    return to + bytes->count;
}

static uint8_t *put_u32(uint8_t *to, uint32_t value) {
    write_u32(to, value);
    return to + 4;
}

static uint8_t *put_u64(uint8_t *to, uint64_t value) {
    write_u64(to, value);
    return to + 8;
}

static uint8_t *put_record(uint8_t *to, const Append *append, const Row *row, const Message *message,
                           int64_t queue_offset, int64_t offset) {
    int64_t flags = row->sys_flag | (row->born_host.count != V4_HOST ? BORN_V6 : 0);
    flags |= append->store_host.count != V4_HOST ? STORE_V6 : 0;
    int64_t size = fixed_bytes(append, row) + message->body.count + message->properties.count;
    to = put_u32(to, (uint32_t)size);
    to = put_u32(to, row->topic.count <= LONGEST_V1_TOPIC + 1 ? V1 : V2);
    to = put_u32(to, crc32_update(0, message->body.start, (size_t)message->body.count) & CRC_MASK);
    to = put_u32(to, (uint32_t)row->queue_id);
    to = put_u32(to, (uint32_t)message->flag);
    to = put_u64(to, (uint64_t)queue_offset);
    to = put_u64(to, (uint64_t)offset);
    to = put_u32(to, (uint32_t)flags);
    to = put_u64(to, (uint64_t)row->born);
    to = put_bytes(to, &row->born_host);
    to = put_u64(to, (uint64_t)append->stored);
    to = put_bytes(to, &append->store_host);
    to = put_u32(to, (uint32_t)row->reconsumed);
    to = put_u64(to, 0); /* the prepared offset */
    to = put_u32(to, (uint32_t)message->body.count);
    to = put_bytes(to, &message->body);
    to = put_bytes(to, &row->topic);
    *to++ = (uint8_t)(message->properties.count >> 8);
    *to++ = (uint8_t)message->properties.count;
    return put_bytes(to, &message->properties);
}

static PyObject *records_of(const Append *append) {
    PyObject *records = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)append->size);
    uint8_t *start = records == NULL ? NULL : (uint8_t *)PyBytes_AsString(records), *to = start;
    const Message *message = append->messages;
    for (Py_ssize_t at = 0; records != NULL && at < append->row_count; at++)
        for (Py_ssize_t number = 0; number < append->rows[at].count; number++, message++)
            to = put_record(to, append, &append->rows[at], message, append->rows[at].queue_offset + number,
                            append->offset + (to - start));
    return records;
}

PyObject *encode_records(ARGUMENTS) {
    static const Signature SIGNATURE = {"encode_records", {"rows", "offset", "store_timestamp", "store_host"}, 4, 4};
    PyObject *bound[4], *records;
    Append append = {.rows = NULL, .messages = NULL};
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    if (read_append(bound, &append)) {
        records = records_of(&append);
    } else {
        PyErr_Clear();
        records = call_reference(module, &SIGNATURE, bound);
    }
    PyMem_Free(append.rows);
    PyMem_Free(append.messages);
    return records;
}
