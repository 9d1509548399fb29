/* Runs of ADD frames and of their responses: twins of codec/frames.py and codec/uniform.py.

   An ADD: length 4, word 4, master key 20, then the entry: ledger 8, entry 8, LAC 8, length 8, digest, payload.
   Its response: length 4 (24), word 4, code 4, ledger 8, entry 8. */

#include "codec.h"

#define PLAIN_ADD 0x02010000u
#define MIN_ADD_BODY (24 + 32)
#define KEY_AT 8
#define KEY_BYTES 20
#define LEDGER_AT 28
#define ENTRY_AT 36
#define ADD_HEAD_BYTES 44
#define ACK_BYTES 28
#define ACK_HEAD_BYTES 20
#define ADD_START_BYTES (28 + 32 + 4) /* before the payload, with a CRC32C */

static const uint8_t ACK_START[] = {0, 0, 0, 24, 2, 1, 0, 0, 0, 0, 0, 0};

/* Ids of one frame after another: often the same number as before, and then the same object. */
typedef struct {
    PyObject *object;
    int64_t number;
} Repeated;

static PyObject *repeated(Repeated *last, int64_t number) {
    if (last->object == NULL || last->number != number) {
        PyObject *object = PyLong_FromLongLong(number);
        if (object == NULL)
            return NULL;
        replace(&last->object, object);
        last->number = number;
    }
    Py_INCREF(last->object);
    return last->object;
}

PyObject *add_run(PyObject *module, const uint8_t *bytes, Py_ssize_t position, Py_ssize_t count) {
    PyObject *type = imported(module, ADD_RUN), *run = NULL, *key = NULL;
    PyObject *keys = PyList_New(count), *ledgers = PyList_New(count), *entries = PyList_New(count);
    PyObject *bounds = PyList_New(count + 1);
    Repeated ledger = {NULL, 0};
    const uint8_t *key_bytes = NULL;
    bool good = type != NULL && keys != NULL && ledgers != NULL && entries != NULL && bounds != NULL &&
                put(bounds, 0, PyLong_FromSsize_t(position));
    for (Py_ssize_t at = 0; good && at < count; at++) {
        const uint8_t *frame = bytes + position;
        if (key_bytes == NULL || memcmp(key_bytes, frame + KEY_AT, KEY_BYTES)) {
            key_bytes = frame + KEY_AT;
            replace(&key, PyBytes_FromStringAndSize((const char *)key_bytes, KEY_BYTES));
        }
        Py_XINCREF(key);
        position += 4 + (Py_ssize_t)read_u32(frame);
        good = put(keys, at, key) && put(ledgers, at, repeated(&ledger, read_i64(frame + LEDGER_AT))) &&
               put(entries, at, PyLong_FromLongLong(read_i64(frame + ENTRY_AT))) &&
               put(bounds, at + 1, PyLong_FromSsize_t(position));
    }
    if (good)
        run = PyObject_CallFunctionObjArgs(type, keys, ledgers, entries, bounds, NULL);
    Py_XDECREF(ledger.object);
    Py_XDECREF(key);
    Py_XDECREF(keys);
    Py_XDECREF(ledgers);
    Py_XDECREF(entries);
    Py_XDECREF(bounds);
    return with_position(run, position);
}

PyObject *scan_adds(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_adds", {"buffer", "start", "end", "max_frame"}, 4, 4};
    PyObject *bound[4];
    int64_t max_frame;
    Region region;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[3], &max_frame) ||
        !open_region(&region, bound[0], bound[1], bound[2]))
        return NULL;
    Py_ssize_t position = region.start, count = 0;
    while (region.end - position >= MIN_ADD_BODY + 4) {
        const uint8_t *frame = region.bytes + position;
        int64_t size = read_u32(frame);
        if (read_u32(frame + 4) != PLAIN_ADD || size < MIN_ADD_BODY || size > max_frame ||
            size > region.end - position - 4)
            break;
        position += 4 + (Py_ssize_t)size;
        count++;
    }
    PyObject *run = add_run(module, region.bytes, region.start, count);
    close_region(&region);
    return run;
}

PyObject *scan_uniform_adds(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_uniform_adds", {"buffer", "start", "end", "max_frame"}, 4, 4};
    PyObject *bound[4], *run = NULL;
    int64_t max_frame;
    Region region;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[3], &max_frame) ||
        !open_region(&region, bound[0], bound[1], bound[2]))
        return NULL;
    int64_t filled = region.end - region.start, count = 0;
    if (filled >= ADD_HEAD_BYTES) {
        const uint8_t *first = region.bytes + region.start;
        int64_t size = read_u32(first), stride = size + 4;
        if (read_u32(first + 4) == PLAIN_ADD && size >= MIN_ADD_BODY && size <= max_frame)
            count = filled / stride;
        for (int64_t at = 1; at < count; at++)
            if (memcmp(first, first + at * stride, ENTRY_AT)) /* length, word, key, ledger */
                count = 0;
    }
    if (count >= 2) {
        run = add_run(module, region.bytes, region.start, (Py_ssize_t)count);
    } else {
        Py_INCREF(Py_None);
        run = Py_None;
    }
    close_region(&region);
    return run;
}

PyObject *ack_adds(ARGUMENTS) {
    static const Signature SIGNATURE = {"ack_adds", {"run"}, 1, 1};
    PyObject *bound[1], *ledgers = NULL, *entries = NULL, *responses = NULL;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    PyObject *ledger_list = PyObject_GetAttrString(bound[0], "ledgers");
    PyObject *entry_list = PyObject_GetAttrString(bound[0], "entries");
    if (ledger_list == NULL || entry_list == NULL || (ledgers = PySequence_Tuple(ledger_list)) == NULL ||
        (entries = PySequence_Tuple(entry_list)) == NULL)
        goto done;
    (void)module;
    Py_ssize_t count = PyTuple_Size(ledgers);
    if (count != PyTuple_Size(entries) || count > PY_SSIZE_T_MAX / ACK_BYTES) {
        PyErr_SetString(PyExc_ValueError, "a run has as many ledgers as entries");
        goto done;
    }
    responses = PyBytes_FromStringAndSize(NULL, count * ACK_BYTES);
    uint8_t *response = responses == NULL ? NULL : (uint8_t *)PyBytes_AsString(responses);
    for (Py_ssize_t at = 0; responses != NULL && at < count; at++, response += ACK_BYTES) {
        int64_t ledger, entry;
        if (!to_int64(PyTuple_GetItem(ledgers, at), &ledger) || !to_int64(PyTuple_GetItem(entries, at), &entry)) {
            Py_CLEAR(responses);
            break;
        }
        memcpy(response, ACK_START, sizeof ACK_START);
        write_u64(response + sizeof ACK_START, (uint64_t)ledger);
        write_u64(response + ACK_HEAD_BYTES, (uint64_t)entry);
    }
done:
    Py_XDECREF(ledger_list);
    Py_XDECREF(entry_list);
    Py_XDECREF(ledgers);
    Py_XDECREF(entries);
    return responses;
}

PyObject *scan_acks(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_acks", {"buffer", "start", "end", "ledger"}, 4, 4};
    PyObject *bound[4];
    int64_t ledger;
    Region region;
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[3], &ledger) ||
        !open_region(&region, bound[0], bound[1], bound[2]))
        return NULL;
    uint8_t good[ACK_HEAD_BYTES];
    memcpy(good, ACK_START, sizeof ACK_START);
    write_u64(good + sizeof ACK_START, (uint64_t)ledger);
    Py_ssize_t position = region.start, count = 0;
    while (region.end - position >= ACK_BYTES && !memcmp(region.bytes + position, good, sizeof good)) {
        position += ACK_BYTES;
        count++;
    }
    PyObject *entries = PyList_New(count);
    const uint8_t *entry = region.bytes + region.start + ACK_HEAD_BYTES;
    for (Py_ssize_t at = 0; entries != NULL && at < count; at++)
        if (!put(entries, at, PyLong_FromLongLong(read_i64(entry + at * ACK_BYTES))))
            Py_CLEAR(entries);
    close_region(&region);
    return with_position(entries, position);
}

/* What all frames of a call have in common, and how far the ledger is. */
typedef struct {
    uint8_t start[ADD_START_BYTES];
    uint32_t overhead; /* of a frame's length */
    int64_t entry;
    int64_t length;
} AddEncoder;

/* The bytes of a frame before this payload. Returns NULL with an exception set. */
static PyObject *encode_start(AddEncoder *encoder, PyObject *payload) {
    Py_buffer view;
    if (PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *encoded = NULL;
    if (encoder->length > INT64_MAX - view.len || (uint64_t)view.len > UINT32_MAX - encoder->overhead) {
        PyErr_SetString(PyExc_OverflowError, "a frame or a ledger is longer than its length can say");
    } else {
        encoder->length += view.len;
        uint8_t *header = encoder->start + LEDGER_AT;
        write_u32(encoder->start, encoder->overhead + (uint32_t)view.len);
        write_u64(header + 8, (uint64_t)encoder->entry);
        write_u64(header + 24, (uint64_t)encoder->length);
        write_u32(header + 32, crc32c_update(crc32c_update(0, header, 32), view.buf, (size_t)view.len));
        encoded = PyBytes_FromStringAndSize((const char *)encoder->start, ADD_START_BYTES);
    }
    PyBuffer_Release(&view);
    return encoded;
}

static bool open_encoder(AddEncoder *encoder, PyObject *const *bound) {
    int64_t ledger, lac, flags = 0;
    Py_buffer key;
    if (!to_int64(bound[1], &ledger) || !to_int64(bound[2], &encoder->entry) || !to_int64(bound[3], &lac) ||
        !to_int64(bound[4], &encoder->length) || (bound[8] != NULL && !to_int64(bound[8], &flags)))
        return false;
    if (flags < 0 || flags > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "flags are 32 bits");
        return false;
    }
    if (PyObject_GetBuffer(bound[0], &key, PyBUF_SIMPLE) < 0)
        return false;
    memset(encoder->start, 0, sizeof encoder->start);
    write_u32(encoder->start + 4, PLAIN_ADD | (uint32_t)flags);
    memcpy(encoder->start + KEY_AT, key.buf, key.len < KEY_BYTES ? (size_t)key.len : KEY_BYTES);
    PyBuffer_Release(&key);
    write_u64(encoder->start + LEDGER_AT, (uint64_t)ledger);
    write_u64(encoder->start + LEDGER_AT + 16, (uint64_t)lac);
    encoder->overhead = ADD_START_BYTES - 4;
    return true;
}

PyObject *encode_adds(ARGUMENTS) {
    static const Signature SIGNATURE = {
        "encode_adds",
        {"master_key", "ledger", "first", "lac", "length", "payloads", "digest", "digest_bytes", "flags"},
        8,
        9,
    };
    PyObject *bound[9];
    int64_t digest_bytes;
    AddEncoder encoder;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[7], &digest_bytes))
        return NULL;
    if (bound[6] != state_of(module)->crc32c_digest || digest_bytes != 4)
        return call_reference(module, &SIGNATURE, bound);
    if (!open_encoder(&encoder, bound))
        return NULL;
    PyObject *type = imported(module, ADD_FRAMES), *frames = NULL, *parts = NULL;
    PyObject *payloads = PySequence_Tuple(bound[5]); /* its own: nobody can change it meanwhile */
    if (type == NULL || payloads == NULL)
        goto done;
    Py_ssize_t count = PyTuple_Size(payloads);
    const int64_t first = encoder.entry;
    if (count && first > INT64_MAX - (count - 1)) {
        PyErr_SetString(PyExc_OverflowError, "entry ids end before that");
        goto done;
    }
    parts = PyList_New(2 * count);
    for (Py_ssize_t at = 0; parts != NULL && at < count; at++) {
        PyObject *payload = PyTuple_GetItem(payloads, at);
        encoder.entry = first + at;
        if (!put(parts, 2 * at, encode_start(&encoder, payload))) {
            Py_CLEAR(parts);
            break;
        }
        Py_INCREF(payload);
        if (!put(parts, 2 * at + 1, payload))
            Py_CLEAR(parts);
    }
    if (parts != NULL)
        frames = PyObject_CallFunctionObjArgs(type, parts, NULL);
done:
    Py_XDECREF(payloads);
    Py_XDECREF(parts);
    return frames == NULL ? NULL : Py_BuildValue("(NL)", frames, (long long)encoder.length);
}
