/* Runs of CommitLog records: twins of codec/records.py, which has the layout, and of codec/uniform_records.py. */

#include "records.h"

#define BLANK 0xCBD43194u
#define BLANK_BYTES 8
#define FEW 16 /* of fewer no run is uniform */

/* What the last bytes of a buffer are, too few for a record; or those at a place where no usual one is. */
static Imported judge_rest(const uint8_t *bytes, Py_ssize_t limit, Py_ssize_t position) {
    if (position == limit)
        return STOP_END;
    if (limit - position < BLANK_BYTES)
        return STOP_PARTIAL;
    uint32_t size = read_u32(bytes + position), magic = read_u32(bytes + position + 4);
    if (magic == BLANK)
        return STOP_BLANK;
    if (!size && !magic)
        return STOP_NOTHING;
    return (magic == V1 || magic == V2) && size >= SMALLEST ? STOP_PARTIAL : STOP_DAMAGED;
}

bool read_record(const uint8_t *bytes, Py_ssize_t limit, Py_ssize_t position, Record *record) {
    if (limit - position < SMALLEST)
        return false;
    const uint8_t *start = bytes + position;
    int64_t size = read_u32(start), left = limit - position;
    uint32_t magic = read_u32(start + 4), flags = read_u32(start + SYS_FLAG_AT);
    int64_t born_extra = flags & BORN_V6 ? V6_EXTRA : 0, store_extra = flags & STORE_V6 ? V6_EXTRA : 0;
    int64_t body_at = BODY_SIZE_AT + born_extra + store_extra + 4, topic_size_bytes = magic == V1 ? 1 : 2;
    if ((magic != V1 && magic != V2) || size > left || body_at > size)
        return false;
    int64_t body_size = read_i32(start + body_at - 4), topic_at = body_at + body_size + topic_size_bytes;
    if (body_size < 0 || topic_at + 2 > size)
        return false;
    int64_t topic_size = topic_size_bytes == 1 ? start[topic_at - 1] : read_u16(start + topic_at - 2);
    int64_t properties_at = topic_at + topic_size + 2;
    if (properties_at > size || properties_at + read_u16(start + properties_at - 2) != size)
        return false;
    record->position = position;
    record->size = (Py_ssize_t)size;
    record->stored_at = position + STORED_AT + (Py_ssize_t)born_extra;
    record->body_at = position + (Py_ssize_t)body_at;
    record->body_end = record->body_at + (Py_ssize_t)body_size;
    record->topic_at = position + (Py_ssize_t)topic_at;
    record->topic_end = record->topic_at + (Py_ssize_t)topic_size;
    return true;
}

bool read_placed(const uint8_t *bytes, Py_ssize_t limit, Py_ssize_t position, int64_t base, Record *record) {
    return read_record(bytes, limit, position, record) && base <= INT64_MAX - position &&
           read_i64(bytes + position + PHYSICAL_AT) == base + position;
}

/* Why there is none. */
static Imported stop_at(const uint8_t *bytes, Py_ssize_t limit, Py_ssize_t position) {
    Imported rest = judge_rest(bytes, limit, position);
    bool is_whole = limit - position >= SMALLEST && (int64_t)read_u32(bytes + position) <= limit - position;
    return rest == STOP_PARTIAL && is_whole ? STOP_DAMAGED : rest;
}

bool has_its_crc(const uint8_t *bytes, const Record *record) {
    uint32_t crc = crc32_update(0, bytes + record->body_at, (size_t)(record->body_end - record->body_at));
    return (crc & CRC_MASK) == read_u32(bytes + record->position + CRC_AT);
}

enum { POSITIONS, SIZES, QUEUE_IDS, QUEUE_OFFSETS, SYS_FLAGS, STORE_TIMESTAMPS, TOPICS, PROPERTIES, COLUMN_COUNT };

/* A RecordRun in the making. */
typedef struct {
    PyObject *columns[COLUMN_COUNT];
    PyObject *topic; /* the last one's: a run often has one for all */
} Columns;

static bool open_columns(Columns *columns, Py_ssize_t count) {
    bool good = true;
    columns->topic = NULL;
    for (int column = 0; column < COLUMN_COUNT; column++)
        good = (columns->columns[column] = PyList_New(count)) != NULL && good;
    return good;
}

PyObject *bytes_between(const uint8_t *bytes, Py_ssize_t start, Py_ssize_t stop, PyObject **last) {
    char *before;
    Py_ssize_t count;
    if (*last == NULL || PyBytes_AsStringAndSize(*last, &before, &count) < 0 || count != stop - start ||
        memcmp(before, bytes + start, (size_t)count))
        replace(last, PyBytes_FromStringAndSize((const char *)bytes + start, stop - start));
    Py_XINCREF(*last);
    return *last;
}

static bool put_record(Columns *columns, Py_ssize_t at, const uint8_t *bytes, const Record *record) {
    PyObject **column = columns->columns;
    const uint8_t *start = bytes + record->position;
    Py_ssize_t properties_at = record->topic_end + 2, end = record->position + record->size;
    return put(column[POSITIONS], at, PyLong_FromSsize_t(record->position)) &&
           put(column[SIZES], at, PyLong_FromSsize_t(record->size)) &&
           put(column[QUEUE_IDS], at, PyLong_FromLong(read_i32(start + QUEUE_ID_AT))) &&
           put(column[QUEUE_OFFSETS], at, PyLong_FromLongLong(read_i64(start + QUEUE_OFFSET_AT))) &&
           put(column[SYS_FLAGS], at, PyLong_FromLong(read_i32(start + SYS_FLAG_AT))) &&
           put(column[STORE_TIMESTAMPS], at, PyLong_FromLongLong(read_i64(bytes + record->stored_at))) &&
           put(column[TOPICS], at, bytes_between(bytes, record->topic_at, record->topic_end, &columns->topic)) &&
           put(column[PROPERTIES], at,
               PyBytes_FromStringAndSize((const char *)bytes + properties_at, end - properties_at));
}

/* Releases the columns, and makes a RecordRun of them if they are good. */
static PyObject *close_columns(PyObject *module, Columns *columns, bool good, Py_ssize_t end, Imported stop) {
    PyObject *type = good ? imported(module, RECORD_RUN) : NULL, *why = good ? imported(module, stop) : NULL, *run = NULL;
    PyObject **column = columns->columns;
    if (type != NULL && why != NULL)
        run = PyObject_CallFunction(type, "OOOOOOOOnO", column[POSITIONS], column[SIZES], column[QUEUE_IDS],
                                    column[QUEUE_OFFSETS], column[SYS_FLAGS], column[STORE_TIMESTAMPS], column[TOPICS],
                                    column[PROPERTIES], end, why);
    for (int at = 0; at < COLUMN_COUNT; at++)
        Py_XDECREF(column[at]);
    Py_XDECREF(columns->topic);
    return run;
}

PyObject *scan_records(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_records", {"buffer", "base", "verify"}, 2, 2};
    PyObject *bound[3];
    int64_t base;
    int verify = 0;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) ||
        (bound[2] != NULL && (verify = PyObject_IsTrue(bound[2])) < 0))
        return NULL;
    if (!PyBytes_Check(bound[0]))
        return call_reference(module, &SIGNATURE, bound);
    char *start;
    Py_ssize_t limit, position = 0, count = 0;
    if (!to_int64(bound[1], &base) || PyBytes_AsStringAndSize(bound[0], &start, &limit) < 0)
        return NULL;
    const uint8_t *bytes = (const uint8_t *)start;
    Record record;
    for (; read_placed(bytes, limit, position, base, &record) && (!verify || has_its_crc(bytes, &record)); count++)
        position += record.size;
    Columns columns;
    bool good = open_columns(&columns, count);
    for (Py_ssize_t at = 0, next = 0; good && at < count; at++, next += record.size)
        good = read_record(bytes, limit, next, &record) && put_record(&columns, at, bytes, &record);
    return close_columns(module, &columns, good, position, stop_at(bytes, limit, position));
}

/* How many records like the first fill the buffer, but for less than one at the end; 0 if any differs. */
static Py_ssize_t count_uniform(const uint8_t *bytes, Py_ssize_t limit, int64_t base, Record *first) {
    if (limit < FEW * SMALLEST || !read_placed(bytes, limit, 0, base, first) || read_u32(bytes + 4) != V1 ||
        read_u32(bytes + SYS_FLAG_AT) & (BORN_V6 | STORE_V6))
        return 0;
    Py_ssize_t count = limit / first->size, middle = first->topic_at - 1;
    size_t middle_bytes = (size_t)(first->topic_end + 2 - middle); /* the topic, its size and that of the properties */
    if (count < FEW || base > INT64_MAX - count * first->size)
        return 0;
    for (Py_ssize_t at = 1; at < count; at++) {
        const uint8_t *record = bytes + at * first->size;
        if (memcmp(record, bytes, 8) || memcmp(record + BODY_SIZE_AT, bytes + BODY_SIZE_AT, 4) ||
            memcmp(record + middle, bytes + middle, middle_bytes) ||
            read_i64(record + PHYSICAL_AT) != base + at * first->size ||
            read_u32(record + SYS_FLAG_AT) & (BORN_V6 | STORE_V6))
            return 0;
    }
    return count;
}

PyObject *scan_uniform_records(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_uniform_records", {"buffer", "base"}, 2, 2};
    PyObject *bound[2];
    int64_t base;
    char *start;
    Py_ssize_t limit;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[1], &base) ||
        PyBytes_AsStringAndSize(bound[0], &start, &limit) < 0)
        return NULL;
    const uint8_t *bytes = (const uint8_t *)start;
    Record record;
    Py_ssize_t count = count_uniform(bytes, limit, base, &record);
    if (!count) {
        Py_INCREF(Py_None);
        return Py_None;
    }
    Columns columns;
    bool good = open_columns(&columns, count);
    Py_ssize_t size = record.size;
    for (Py_ssize_t at = 0; good && at < count; at++) {
        good = put_record(&columns, at, bytes, &record);
        record.position += size, record.stored_at += size, record.topic_at += size, record.topic_end += size;
    }
    return close_columns(module, &columns, good, count * size, STOP_END);
}
