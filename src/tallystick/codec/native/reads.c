/* Runs of READs, of their responses, and of entries with their digests: twins of codec/reads.py and codec/frames.py.

   A READ: length 4 (20), word 4, ledger 8, entry 8. Its good response: length 4, word 4, code 4 (0), ledger 8, entry 8,
   then the entry: ledger 8, entry 8, LAC 8, length 8, digest, payload. */

#include "codec.h"

#define PLAIN_READ 0x02020000u
#define READ_BYTES 24
#define READ_HEAD ((uint64_t)20 << 32 | PLAIN_READ)
#define RESPONSE_PREFIX 28
#define RESPONSE_ENTRY_AT 20
#define FEW 4

PyObject *scan_read_requests(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_read_requests", {"buffer", "start", "end"}, 3, 3};
    PyObject *bound[3];
    Region region;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !open_region(&region, bound[0], bound[1], bound[2]))
        return NULL;
    Py_ssize_t count = 0, first = 0;
    const uint8_t *frames = region.bytes + region.start;
    while (region.end - region.start - count * READ_BYTES >= READ_BYTES &&
           read_u64(frames + count * READ_BYTES) == READ_HEAD)
        count++;
    PyObject *runs = PyList_New(0);
    int64_t *ids = PyMem_Malloc(count ? (size_t)count * sizeof *ids : 1);
    if (ids == NULL) {
        PyErr_NoMemory();
        Py_CLEAR(runs);
    }
    for (Py_ssize_t at = 0; runs != NULL && at < count; at++) {
        const uint8_t *frame = frames + at * READ_BYTES, *next = frame + READ_BYTES;
        int64_t ledger = read_i64(frame + 8);
        ids[at] = read_i64(frame + 16);
        if (at + 1 < count && read_i64(next + 8) == ledger && ids[at] >= 0 && ids[at] < read_i64(next + 16))
            continue;
        PyObject *entries = number_array(module, 'q', ids + first, at + 1 - first);
        if (entries == NULL || !append(runs, Py_BuildValue("(LN)", (long long)ledger, entries)))
            Py_CLEAR(runs);
        first = at + 1;
    }
    PyMem_Free(ids);
    close_region(&region);
    return with_position(runs, region.start + count * READ_BYTES);
}

PyObject *encode_reads(ARGUMENTS) {
    static const Signature SIGNATURE = {"encode_reads", {"ledger", "entries"}, 2, 2};
    PyObject *bound[2];
    int64_t ledger, entry;
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[0], &ledger))
        return NULL;
    PyObject *entries = PySequence_Tuple(bound[1]), *frames = NULL;
    if (entries == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_Size(entries);
    frames = count > PY_SSIZE_T_MAX / READ_BYTES ? PyErr_NoMemory() : PyBytes_FromStringAndSize(NULL, count * READ_BYTES);
    uint8_t *frame = frames == NULL ? NULL : (uint8_t *)PyBytes_AsString(frames);
    for (Py_ssize_t at = 0; frames != NULL && at < count; at++, frame += READ_BYTES) {
        if (!to_int64(PyTuple_GetItem(entries, at), &entry)) {
            Py_CLEAR(frames);
            break;
        }
        write_u64(frame, READ_HEAD);
        write_u64(frame + 8, (uint64_t)ledger);
        write_u64(frame + 16, (uint64_t)entry);
    }
    Py_DECREF(entries);
    return frames;
}

/* Whether all that fits is good responses of one ledger and of the first one's length; count of them. */
static bool even_responses(const Region *region, const uint8_t *head, int64_t step, Py_ssize_t *count) {
    *count = step < RESPONSE_PREFIX || step > COPIED_BYTES ? 0 : (region->end - region->start) / (Py_ssize_t)step;
    if (*count < FEW)
        return false;
    const uint8_t *frame = region->bytes + region->start;
    for (Py_ssize_t at = 0; at < *count; at++, frame += step)
        if (memcmp(frame, head, RESPONSE_ENTRY_AT))
            return false;
    return true;
}

/* Views of count entries, which lie one after another, each behind a checked length and the rest of a prefix. */
static PyObject *entry_views(PyObject *frames, const uint8_t *bytes, Py_ssize_t count) {
    PyObject *views = PyList_New(count);
    Py_ssize_t position = 0;
    for (Py_ssize_t at = 0; views != NULL && at < count; at++) {
        Py_ssize_t stop = position + 4 + (Py_ssize_t)read_u32(bytes + position);
        if (!put(views, at, slice_of(frames, position + RESPONSE_PREFIX, stop)))
            Py_CLEAR(views);
        position = stop;
    }
    return views;
}

/* (ids, entries, stop) of count responses that end at position. Even ones have a step, others 0. */
static PyObject *responses(PyObject *module, const Region *region, Py_ssize_t position, Py_ssize_t count,
                           Py_ssize_t step) {
    const uint8_t *bytes = region->bytes + region->start;
    PyObject *copy = PyBytes_FromStringAndSize((const char *)bytes, position - region->start);
    PyObject *frames = copy == NULL ? NULL : PyMemoryView_FromObject(copy), *entries = NULL, *even = NULL;
    PyObject *ids = PyList_New(count), *result = NULL;
    const uint8_t *frame = bytes;
    for (Py_ssize_t at = 0; ids != NULL && at < count; at++) {
        if (!put(ids, at, PyLong_FromLongLong(read_i64(frame + RESPONSE_ENTRY_AT))))
            Py_CLEAR(ids);
        frame += 4 + (Py_ssize_t)read_u32(frame);
    }
    if (frames == NULL || ids == NULL)
        goto done;
    if (!step)
        entries = entry_views(frames, bytes, count);
    else if ((even = imported(module, EVEN_ENTRIES)) != NULL)
        entries = PyObject_CallFunction(even, "Oni", frames, step - RESPONSE_PREFIX, RESPONSE_PREFIX);
    if (entries != NULL)
        result = Py_BuildValue("(OOn)", ids, entries, position);
done:
    Py_XDECREF(copy);
    Py_XDECREF(frames);
    Py_XDECREF(ids);
    Py_XDECREF(entries);
    return result;
}

PyObject *scan_reads(ARGUMENTS) {
    static const Signature SIGNATURE = {"scan_reads", {"buffer", "start", "end", "ledger"}, 4, 4};
    PyObject *bound[4];
    int64_t ledger;
    Region region;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[3], &ledger) ||
        !open_region(&region, bound[0], bound[1], bound[2]))
        return NULL;
    uint8_t head[RESPONSE_ENTRY_AT] = {0}; /* the code stays 0 */
    write_u32(head + 4, PLAIN_READ);
    write_u64(head + 12, (uint64_t)ledger);
    Py_ssize_t position = region.start, count = 0, step = 0;
    if (region.end - region.start >= RESPONSE_PREFIX) {
        int64_t first_step = 4 + (int64_t)read_u32(region.bytes + region.start);
        memcpy(head, region.bytes + region.start, 4);
        if (even_responses(&region, head, first_step, &count)) {
            step = (Py_ssize_t)first_step;
            position += count * step;
        }
    }
    for (count = step ? count : 0; !step && region.end - position >= RESPONSE_PREFIX; count++) {
        const uint8_t *frame = region.bytes + position;
        int64_t size = read_u32(frame);
        if (memcmp(frame + 4, head + 4, sizeof head - 4) || size < RESPONSE_PREFIX - 4 ||
            size > region.end - position - 4)
            break;
        position += 4 + (Py_ssize_t)size;
    }
    PyObject *result = responses(module, &region, position, count, step);
    close_region(&region);
    return result;
}

PyObject *response_entries(ARGUMENTS) {
    static const Signature SIGNATURE = {"response_entries", {"frames", "count"}, 2, 2};
    PyObject *bound[2], *entries = NULL;
    Py_buffer view;
    int64_t expected;
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[1], &expected))
        return NULL;
    if (expected < 1) {
        PyErr_SetString(PyExc_ValueError, "there is at least one response");
        return NULL;
    }
    if (PyObject_GetBuffer(bound[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *bytes = view.buf;
    entries = PyList_New(0);
    for (Py_ssize_t position = 0; entries != NULL && position < view.len;) {
        Py_ssize_t left = view.len - position, prefix = left < 4 ? left : 4;
        int64_t size = 0;
        for (Py_ssize_t at = 0; at < prefix; at++)
            size = size << 8 | bytes[position + at];
        Py_ssize_t frame = size > left - 4 ? left : 4 + (Py_ssize_t)size;
        Py_ssize_t entry = frame > RESPONSE_PREFIX ? frame - RESPONSE_PREFIX : 0;
        const uint8_t *from = entry ? bytes + position + RESPONSE_PREFIX : bytes;
        if (!append(entries, PyBytes_FromStringAndSize((const char *)from, entry)))
            Py_CLEAR(entries);
        position += frame;
    }
    PyBuffer_Release(&view);
    return entries;
}

/* Entries as they are opened one after another: each is the next id of one ledger, or the run ends before it. */
typedef struct {
    int64_t ledger;
    int64_t first;
    int64_t *lacs;
    int64_t *lengths;
    Py_ssize_t count;
    PyObject *payloads; /* a list */
} Opened;

static bool open_room(Opened *opened, Py_ssize_t most) {
    opened->count = 0;
    opened->lacs = PyMem_Malloc(most ? (size_t)most * sizeof(int64_t) : 1);
    opened->lengths = PyMem_Malloc(most ? (size_t)most * sizeof(int64_t) : 1);
    opened->payloads = PyList_New(0);
    if (opened->lacs == NULL || opened->lengths == NULL)
        PyErr_NoMemory();
    return opened->lacs != NULL && opened->lengths != NULL && opened->payloads != NULL;
}

bool is_entry(const uint8_t *bytes, Py_ssize_t size, int64_t ledger, int64_t entry) {
    if (size < ENTRY_START_BYTES || read_i64(bytes) != ledger || read_i64(bytes + 8) != entry)
        return false;
    uint32_t crc = crc32c_update(0, bytes, ENTRY_HEADER_BYTES);
    crc = crc32c_update(crc, bytes + ENTRY_START_BYTES, (size_t)(size - ENTRY_START_BYTES));
    return crc == read_u32(bytes + ENTRY_HEADER_BYTES);
}

/* Whether these bytes are the next entry; its LAC and length are kept then, and the payload is the caller's to add. */
static bool open_entry(Opened *opened, const uint8_t *entry, Py_ssize_t size) {
    if (opened->first > INT64_MAX - opened->count ||
        !is_entry(entry, size, opened->ledger, opened->first + opened->count))
        return false;
    opened->lacs[opened->count] = read_i64(entry + 16);
    opened->lengths[opened->count] = read_i64(entry + 24);
    opened->count++;
    return true;
}

/* The entries of an EvenEntries, whose payloads are copies. Returns false with an exception set. */
static bool open_even(Opened *opened, PyObject *data, Py_ssize_t size, Py_ssize_t gap) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return false;
    bool good = false;
    if (gap < 0 || gap > view.len || view.len % (gap + size)) {
        PyErr_SetString(PyExc_ValueError, "entries of one size do not fill their bytes");
    } else if (open_room(opened, view.len / (gap + size))) {
        good = true;
        for (Py_ssize_t at = gap; good && at < view.len; at += gap + size) {
            const uint8_t *entry = (const uint8_t *)view.buf + at;
            if (!open_entry(opened, entry, size))
                break;
            good = append(opened->payloads,
                          PyBytes_FromStringAndSize((const char *)entry + ENTRY_START_BYTES, size - ENTRY_START_BYTES));
        }
    }
    PyBuffer_Release(&view);
    return good;
}

/* The payload of an entry: a copy, or else a view. */
static PyObject *payload_of(PyObject *entry, const Py_buffer *bytes, bool copied) {
    if (copied)
        return PyBytes_FromStringAndSize((const char *)bytes->buf + ENTRY_START_BYTES, bytes->len - ENTRY_START_BYTES);
    PyObject *view = PyMemoryView_FromObject(entry);
    PyObject *payload = view == NULL ? NULL : slice_of(view, ENTRY_START_BYTES, bytes->len);
    Py_XDECREF(view);
    return payload;
}

/* Opens entries that are objects. Returns false with an exception set. */
static bool open_each(Opened *opened, PyObject *entries, bool copied) {
    Py_ssize_t count = PyTuple_Size(entries);
    if (!open_room(opened, count))
        return false;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *entry = PyTuple_GetItem(entries, at);
        Py_buffer view;
        if (PyObject_GetBuffer(entry, &view, PyBUF_SIMPLE) < 0)
            return false;
        bool next = open_entry(opened, view.buf, view.len);
        bool good = !next || append(opened->payloads, payload_of(entry, &view, copied));
        PyBuffer_Release(&view);
        if (!next || !good)
            return good;
    }
    return true;
}

/* Whether all entries have one size, of which payloads are copied. Returns -1 with an exception set. */
static int are_alike(PyObject *entries) {
    Py_ssize_t count = PyTuple_Size(entries), first = count ? PyObject_Size(PyTuple_GetItem(entries, 0)) : 0;
    bool alike = count && first >= ENTRY_START_BYTES && first <= COPIED_BYTES;
    if (first < 0)
        return -1;
    for (Py_ssize_t at = 1; alike && at < count; at++) {
        Py_ssize_t size = PyObject_Size(PyTuple_GetItem(entries, at));
        if (size < 0)
            return -1;
        alike = size == first;
    }
    return alike;
}

static bool attribute(PyObject *object, const char *name, Py_ssize_t *number) {
    PyObject *value = PyObject_GetAttrString(object, name);
    *number = value == NULL ? -1 : PyLong_AsSsize_t(value);
    Py_XDECREF(value);
    return *number != -1 || !PyErr_Occurred();
}

bool even_of(PyObject *entries, Even *even) {
    even->data = NULL;
    if (!attribute(entries, "size", &even->size) || !attribute(entries, "gap", &even->gap))
        return false;
    if (even->size < 0 || even->gap < 0 || even->size > PY_SSIZE_T_MAX - even->gap || !(even->size + even->gap)) {
        PyErr_SetString(PyExc_ValueError, "entries have a size, and bytes between them");
        return false;
    }
    even->data = PyObject_GetAttrString(entries, "data");
    return even->data != NULL;
}

/* Opens entries of any kind. Payloads that are copies are a tuple, as the reference has them. */
static bool open_any(PyObject *module, Opened *opened, PyObject *entries, bool *copied) {
    PyObject *even = imported(module, EVEN_ENTRIES), *spread = imported(module, SPREAD_ENTRIES), *each = NULL;
    if (even == NULL || spread == NULL)
        return false;
    if ((PyObject *)Py_TYPE(entries) == even) {
        Py_ssize_t size, gap, count = PyObject_Size(entries);
        if (count < 0 || !attribute(entries, "size", &size) || !attribute(entries, "gap", &gap))
            return false;
        *copied = count && size >= ENTRY_START_BYTES && size <= COPIED_BYTES;
        if (*copied) {
            PyObject *data = PyObject_GetAttrString(entries, "data");
            bool good = data != NULL && open_even(opened, data, size, gap);
            Py_XDECREF(data);
            return good;
        }
    }
    if ((PyObject *)Py_TYPE(entries) == spread) {
        PyObject *in_order = PyObject_CallMethod(entries, "in_order", NULL);
        each = in_order == NULL ? NULL : PySequence_Tuple(in_order);
        Py_XDECREF(in_order);
    } else {
        each = PySequence_Tuple(entries);
    }
    int alike = each == NULL ? -1 : are_alike(each);
    *copied = alike == 1;
    bool good = alike >= 0 && open_each(opened, each, *copied);
    Py_XDECREF(each);
    return good;
}

PyObject *open_entries(ARGUMENTS) {
    static const Signature SIGNATURE = {
        "open_entries", {"entries", "ledger", "first", "digests", "digest_bytes"}, 5, 5};
    PyObject *bound[5], *lacs = NULL, *lengths = NULL, *payloads = NULL, *run = NULL;
    int64_t digest_bytes;
    Opened opened = {0};
    bool copied = false;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[4], &digest_bytes))
        return NULL;
    if (bound[3] != state_of(module)->crc32c_digests || digest_bytes != 4)
        return call_reference(module, &SIGNATURE, bound);
    if (!to_int64(bound[1], &opened.ledger) || !to_int64(bound[2], &opened.first))
        return NULL;
    PyObject *type = imported(module, ENTRY_RUN);
    if (type != NULL && open_any(module, &opened, bound[0], &copied) &&
        (lacs = number_array(module, 'q', opened.lacs, opened.count)) != NULL &&
        (lengths = number_array(module, 'q', opened.lengths, opened.count)) != NULL &&
        (payloads = copied ? PyList_AsTuple(opened.payloads) : Py_BuildValue("O", opened.payloads)) != NULL)
        run = PyObject_CallFunctionObjArgs(type, bound[1], bound[2], lacs, lengths, payloads, NULL);
    PyMem_Free(opened.lacs);
    PyMem_Free(opened.lengths);
    Py_XDECREF(opened.payloads);
    Py_XDECREF(lacs);
    Py_XDECREF(lengths);
    Py_XDECREF(payloads);
    return run;
}
