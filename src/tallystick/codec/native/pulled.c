/* Records as readers get them: twin of codec/pulled.py. */

#include "records.h"

enum {
    SIZES, BODY_CRCS, QUEUE_IDS, FLAGS, QUEUE_OFFSETS, PHYSICAL_OFFSETS, SYS_FLAGS, BORN_TIMESTAMPS, BORN_HOSTS,
    STORE_TIMESTAMPS, STORE_HOSTS, RECONSUME_TIMES, PREPARED_OFFSETS, BODIES, TOPICS, PROPERTIES, COLUMN_COUNT
};

/* A PulledRun in the making: the arguments of its class, in their order, and what the last record had. */
typedef struct {
    PyObject *columns; /* a tuple of lists, and the end */
    PyObject *view;
    PyObject *born_host, *store_host, *topic;
} Pulled;

static bool open_pulled(Pulled *pulled, PyObject *buffer, Py_ssize_t count, Py_ssize_t end) {
    pulled->born_host = pulled->store_host = pulled->topic = NULL;
    pulled->view = PyMemoryView_FromObject(buffer);
    if ((pulled->columns = PyTuple_New(COLUMN_COUNT + 1)) == NULL || pulled->view == NULL)
        return false;
    for (int column = 0; column < COLUMN_COUNT; column++) {
        PyObject *list = PyList_New(count);
        if (list == NULL || PyTuple_SetItem(pulled->columns, column, list) < 0)
            return false;
    }
    PyObject *last = PyLong_FromSsize_t(end);
    return last != NULL && PyTuple_SetItem(pulled->columns, COLUMN_COUNT, last) == 0;
}

static bool put_in(Pulled *pulled, int column, Py_ssize_t at, PyObject *item) {
    return put(PyTuple_GetItem(pulled->columns, column), at, item);
}

static bool put_i32(Pulled *pulled, int column, Py_ssize_t at, const uint8_t *from) {
    return put_in(pulled, column, at, PyLong_FromLong(read_i32(from)));
}

static bool put_i64(Pulled *pulled, int column, Py_ssize_t at, const uint8_t *from) {
    return put_in(pulled, column, at, PyLong_FromLongLong(read_i64(from)));
}

static bool put_record(Pulled *pulled, Py_ssize_t at, const uint8_t *bytes, const Record *record) {
    const uint8_t *start = bytes + record->position;
    Py_ssize_t born_host_at = record->position + BORN_HOST_AT, store_host_at = record->stored_at + 8;
    Py_ssize_t reconsumed_at = record->body_at - 16;
    return put_in(pulled, SIZES, at, PyLong_FromSsize_t(record->size)) &&
           put_in(pulled, BODY_CRCS, at, PyLong_FromUnsignedLong(read_u32(start + CRC_AT))) &&
           put_i32(pulled, QUEUE_IDS, at, start + QUEUE_ID_AT) && put_i32(pulled, FLAGS, at, start + FLAG_AT) &&
           put_i64(pulled, QUEUE_OFFSETS, at, start + QUEUE_OFFSET_AT) &&
           put_i64(pulled, PHYSICAL_OFFSETS, at, start + PHYSICAL_AT) &&
           put_i32(pulled, SYS_FLAGS, at, start + SYS_FLAG_AT) &&
           put_i64(pulled, BORN_TIMESTAMPS, at, start + BORN_AT) &&
           put_in(pulled, BORN_HOSTS, at, bytes_between(bytes, born_host_at, record->stored_at, &pulled->born_host)) &&
           put_i64(pulled, STORE_TIMESTAMPS, at, bytes + record->stored_at) &&
           put_in(pulled, STORE_HOSTS, at, bytes_between(bytes, store_host_at, reconsumed_at, &pulled->store_host)) &&
           put_i32(pulled, RECONSUME_TIMES, at, bytes + reconsumed_at) &&
           put_i64(pulled, PREPARED_OFFSETS, at, bytes + reconsumed_at + 4) &&
           put_in(pulled, BODIES, at, slice_of(pulled->view, record->body_at, record->body_end)) &&
           put_in(pulled, TOPICS, at, bytes_between(bytes, record->topic_at, record->topic_end, &pulled->topic)) &&
           put_in(pulled, PROPERTIES, at,
                  PyBytes_FromStringAndSize((const char *)bytes + record->topic_end + 2,
                                            record->position + record->size - record->topic_end - 2));
}

PyObject *scan_pulled(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_pulled", {"buffer", "verify"}, 1, 1};
    PyObject *bound[2], *type, *run = NULL;
    int verify = 1;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) ||
        (bound[1] != NULL && (verify = PyObject_IsTrue(bound[1])) < 0))
        return NULL;
    if (!PyBytes_Check(bound[0]))
        return call_reference(module, &SIGNATURE, bound);
    char *start;
    Py_ssize_t limit, position = 0, count = 0;
    if (PyBytes_AsStringAndSize(bound[0], &start, &limit) < 0 || (type = imported(module, PULLED_RUN)) == NULL)
        return NULL;
    const uint8_t *bytes = (const uint8_t *)start;
    Record record;
    for (; read_record(bytes, limit, position, &record) && (!verify || has_its_crc(bytes, &record)); count++)
        position += record.size;
    Pulled pulled;
    bool good = open_pulled(&pulled, bound[0], count, position);
    for (Py_ssize_t at = 0, next = 0; good && at < count; at++, next += record.size)
        good = read_record(bytes, limit, next, &record) && put_record(&pulled, at, bytes, &record);
    if (good)
        run = PyObject_CallObject(type, pulled.columns);
    Py_XDECREF(pulled.columns);
    Py_XDECREF(pulled.view);
    Py_XDECREF(pulled.born_host);
    Py_XDECREF(pulled.store_host);
    Py_XDECREF(pulled.topic);
    return run;
}
