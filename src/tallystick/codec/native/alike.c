/* Records that differ in little: twin of codec/alike.py. */

#include "records.h"

#define UNIT_BYTES 20
#define END 2
#define TRANSACTION 12

typedef struct {
    const uint8_t *start;
    Py_ssize_t count;
} Text;

/* What all records have. */
typedef struct {
    Text topic, before, after;
} Common;

static bool text_of(PyObject *object, Text *text) {
    char *start;
    if (!PyBytes_Check(object) || PyBytes_AsStringAndSize(object, &start, &text->count) < 0)
        return false;
    text->start = (const uint8_t *)start;
    return true;
}

static bool equals(const uint8_t *start, const Text *text) {
    return !memcmp(start, text->start, (size_t)text->count);
}

/* Whether there is a record at a position that is alike; its id is somewhere in the buffer. */
static bool read_alike(const Text *buffer, Py_ssize_t position, int64_t base, const Common *common, Record *record,
                       Text *id) {
    const uint8_t *bytes = buffer->start;
    if (!read_placed(bytes, buffer->count, position, base, record) ||
        read_u32(bytes + position + SYS_FLAG_AT) & TRANSACTION ||
        record->topic_end - record->topic_at != common->topic.count || !equals(bytes + record->topic_at, &common->topic))
        return false;
    const uint8_t *properties = bytes + record->topic_end + 2;
    Py_ssize_t count = position + record->size - (record->topic_end + 2);
    id->count = count - common->before.count - common->after.count;
    if (id->count <= 0)
        return false;
    id->start = properties + common->before.count;
    return equals(properties, &common->before) && equals(id->start + id->count, &common->after) &&
           memchr(id->start, END, (size_t)id->count) == NULL;
}

/* Records of one queue without a gap. */
typedef struct {
    int32_t queue_id;
    int64_t first;
    int64_t count;
} Stretch;

static bool close_stretch(PyObject *stretches, const Stretch *stretch) {
    return !stretch->count || append(stretches, Py_BuildValue("(iLL)", (int)stretch->queue_id, (long long)stretch->first,
                                                              (long long)stretch->count));
}

/* One record more, behind a stretch or in a new one. */
static bool extend(PyObject *stretches, Stretch *stretch, int32_t queue_id, int64_t queue_offset) {
    if (stretch->count && stretch->queue_id == queue_id && queue_offset >= INT64_MIN + stretch->count &&
        queue_offset - stretch->count == stretch->first) {
        stretch->count++;
        return true;
    }
    bool good = close_stretch(stretches, stretch);
    stretch->queue_id = queue_id, stretch->first = queue_offset, stretch->count = 1;
    return good;
}

enum { BUFFER, BASE, TOPIC, BEFORE, AFTER, SEED, TAGS_CODE, MOST, ARGUMENT_COUNT };
enum { STRETCHES, UNITS, HASHES, PHYSICALS, STORED_MS, RESULT_COUNT };

/* Everything of one record but its stretch. */
static bool put_alike(PyObject *const *results, Py_ssize_t at, const uint8_t *bytes, int64_t base, const Record *record,
                      int64_t tags_code, uint32_t hash) {
    uint8_t *unit = (uint8_t *)PyBytes_AsString(results[UNITS]) + at * UNIT_BYTES;
    write_u64(unit, (uint64_t)(base + record->position));
    write_u32(unit + 8, (uint32_t)record->size);
    write_u64(unit + 12, (uint64_t)tags_code);
    return put(results[HASHES], at, PyLong_FromUnsignedLong(hash)) &&
           put(results[PHYSICALS], at, PyLong_FromLongLong(base + record->position)) &&
           put(results[STORED_MS], at, PyLong_FromLongLong(read_i64(bytes + record->stored_at)));
}

/* How many of the first records are alike, with ASCII ids. */
static Py_ssize_t count_alike(const Text *buffer, int64_t base, const Common *common, int64_t most) {
    Py_ssize_t position = 0, count = 0;
    Record record;
    Text id;
    uint32_t hash;
    for (; count < most && read_alike(buffer, position, base, common, &record, &id); count++) {
        hash = 0;
        if (!hash_ascii(id.start, id.count, &hash))
            break;
        position += record.size;
    }
    return count;
}

static PyObject *alike_records(const Text *buffer, int64_t base, const Common *common, uint32_t seed, int64_t tags_code,
                               Py_ssize_t count) {
    PyObject *results[RESULT_COUNT] = {PyList_New(0), PyBytes_FromStringAndSize(NULL, count * UNIT_BYTES),
                                       PyList_New(count), PyList_New(count), PyList_New(count)},
             *tuple = NULL;
    bool good = true;
    for (int at = 0; at < RESULT_COUNT; at++)
        good = good && results[at] != NULL;
    Py_ssize_t position = 0;
    Stretch stretch = {0, 0, 0};
    for (Py_ssize_t at = 0; good && at < count; at++) {
        Record record;
        Text id;
        uint32_t hash = seed;
        good = read_alike(buffer, position, base, common, &record, &id) && hash_ascii(id.start, id.count, &hash) &&
               put_alike(results, at, buffer->start, base, &record, tags_code, hash) &&
               extend(results[STRETCHES], &stretch, read_i32(buffer->start + position + QUEUE_ID_AT),
                      read_i64(buffer->start + position + QUEUE_OFFSET_AT));
        position += record.size;
    }
    if (good && close_stretch(results[STRETCHES], &stretch))
        tuple = Py_BuildValue("(OOOOOn)", results[STRETCHES], results[UNITS], results[HASHES], results[PHYSICALS],
                              results[STORED_MS], position);
    for (int at = 0; at < RESULT_COUNT; at++)
        Py_XDECREF(results[at]);
    return tuple;
}

PyObject *scan_alike(ARGUMENTS) {
    static const Signature SIGNATURE = {
        "scan_alike", {"buffer", "base", "topic", "before", "after", "seed", "tags_code", "most"}, 8, 8};
    PyObject *bound[ARGUMENT_COUNT];
    Text buffer;
    Common common;
    int64_t base, seed, tags_code, most;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    bool usual = text_of(bound[BUFFER], &buffer) && text_of(bound[TOPIC], &common.topic) &&
                 text_of(bound[BEFORE], &common.before) && text_of(bound[AFTER], &common.after) &&
                 to_int64(bound[BASE], &base) && to_int64(bound[SEED], &seed) && to_int64(bound[TAGS_CODE], &tags_code) &&
                 to_int64(bound[MOST], &most) && seed >= 0 && seed <= UINT32_MAX && most >= 0;
    if (!usual) {
        PyErr_Clear();
        return call_reference(module, &SIGNATURE, bound);
    }
    Py_ssize_t count = count_alike(&buffer, base, &common, most);
    if (count)
        return alike_records(&buffer, base, &common, (uint32_t)seed, tags_code, count);
    Py_INCREF(Py_None);
    return Py_None;
}
