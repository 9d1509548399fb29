/* Entries that are opened with no object for a payload: twin of open_together of codec/reads.py. */

#include "codec.h"

/* What has been opened. Payloads are copied into packed, if there is one: capacity bytes, of which used are filled. */
typedef struct {
    int64_t ledger;
    int64_t first;
    Py_ssize_t most; /* entries */
    Py_ssize_t count;
    int64_t *lacs;
    int64_t *lengths;
    int64_t *offsets; /* of payloads in packed, one more than there are payloads */
    PyObject *packed; /* bytes */
    Py_ssize_t capacity;
    Py_ssize_t used;
} Together;

static bool room_for(Together *together, Py_ssize_t most) {
    size_t numbers = (size_t)most + 1;
    if (numbers > PY_SSIZE_T_MAX / sizeof(int64_t) ||
        (together->lacs = PyMem_Malloc(numbers * sizeof(int64_t))) == NULL ||
        (together->lengths = PyMem_Malloc(numbers * sizeof(int64_t))) == NULL ||
        (together->offsets = PyMem_Malloc(numbers * sizeof(int64_t))) == NULL) {
        PyErr_NoMemory();
        return false;
    }
    together->most = most;
    together->offsets[0] = 0;
    return true;
}

static bool room_for_payloads(Together *together, Py_ssize_t capacity) {
    together->capacity = capacity;
    together->packed = PyBytes_FromStringAndSize(NULL, capacity);
    return together->packed != NULL;
}

static void release(Together *together) {
    PyMem_Free(together->lacs);
    PyMem_Free(together->lengths);
    PyMem_Free(together->offsets);
    Py_XDECREF(together->packed);
}

/* Takes these bytes if they are the next entry, and if there is room for its payload. */
static bool take(Together *together, const uint8_t *entry, Py_ssize_t size) {
    Py_ssize_t count = together->count;
    if (count == together->most || together->first > INT64_MAX - count ||
        !is_entry(entry, size, together->ledger, together->first + count))
        return false;
    together->lacs[count] = read_i64(entry + 16);
    together->lengths[count] = read_i64(entry + 24);
    if (together->packed != NULL) {
        Py_ssize_t payload = size - ENTRY_START_BYTES;
        if (payload > together->capacity - together->used)
            return false;
        memcpy(PyBytes_AsString(together->packed) + together->used, entry + ENTRY_START_BYTES, (size_t)payload);
        together->used += payload;
        together->offsets[count + 1] = together->used;
    }
    together->count++;
    return true;
}

/* The payloads that are packed. */
static PyObject *packed_payloads(PyObject *module, Together *together) {
    PyObject *type = imported(module, PACKED_ENTRIES), *payloads = NULL;
    PyObject *data = type == NULL ? NULL : PyMemoryView_FromObject(together->packed);
    if (data != NULL && together->used < together->capacity)
        replace(&data, slice_of(data, 0, together->used));
    PyObject *offsets = data == NULL ? NULL : number_array(module, 'q', together->offsets, together->count + 1);
    if (offsets != NULL)
        payloads = PyObject_CallFunctionObjArgs(type, data, offsets, NULL);
    Py_XDECREF(data);
    Py_XDECREF(offsets);
    return payloads;
}

/* The payloads of entries of one size, where they are; all of them are at least as long as an entry's start. */
static PyObject *open_even(PyObject *module, Together *together, const Even *even) {
    Py_buffer view;
    if (PyObject_GetBuffer(even->data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t step = even->gap + even->size;
    bool good = false;
    if (view.len % step)
        PyErr_SetString(PyExc_ValueError, "entries of one size do not fill their bytes");
    else
        good = room_for(together, view.len / step);
    for (Py_ssize_t at = 0; good && at < view.len; at += step)
        if (!take(together, (const uint8_t *)view.buf + at + even->gap, even->size))
            break;
    PyBuffer_Release(&view);
    PyObject *type = good ? imported(module, EVEN_ENTRIES) : NULL;
    PyObject *data = type == NULL ? NULL : slice_of(even->data, 0, together->count * step);
    return data == NULL ? NULL
                        : PyObject_CallFunction(type, "Nnn", data, even->size - ENTRY_START_BYTES,
                                                even->gap + ENTRY_START_BYTES);
}

/* The entries that parts of a SpreadEntries have: their places by id, and the views in which they are. */
typedef struct {
    const uint8_t **entries;
    Py_buffer *views;
    Py_ssize_t held; /* views */
    Py_ssize_t count;
    Py_ssize_t size;
    int64_t first;
} Spread;

static void close_spread(Spread *spread) {
    for (Py_ssize_t at = 0; at < spread->held; at++)
        PyBuffer_Release(&spread->views[at]);
    PyMem_Free(spread->views);
    PyMem_Free(spread->entries);
}

/* Notes where the entries of a part are. Returns false for one that is not as it should be, perhaps with an exception
   set: the reference says what is to be done about it. */
static bool spread_part(PyObject *module, Spread *spread, PyObject *ids, PyObject *entries) {
    PyObject *type = imported(module, EVEN_ENTRIES);
    Even even = {0};
    Py_buffer *view = &spread->views[spread->held];
    if (type == NULL || (PyObject *)Py_TYPE(entries) != type || !even_of(entries, &even) || even.size != spread->size ||
        PyObject_GetBuffer(even.data, view, PyBUF_SIMPLE) < 0) {
        Py_XDECREF(even.data);
        return false;
    }
    spread->held++;
    Py_DECREF(even.data); /* the view holds what it needs */
    Py_ssize_t step = even.gap + even.size, count = PyTuple_Size(ids);
    if (view->len % step || view->len / step != count)
        return false;
    for (Py_ssize_t at = 0; at < count; at++) {
        int64_t id;
        if (!to_int64(PyTuple_GetItem(ids, at), &id) || id < spread->first || id - spread->first >= spread->count ||
            spread->entries[id - spread->first] != NULL)
            return false;
        spread->entries[id - spread->first] = (const uint8_t *)view->buf + at * step + even.gap;
    }
    return true;
}

/* Notes where all entries are; count of the object says how many. Returns false as spread_part does. */
static bool open_spread(PyObject *module, Spread *spread, PyObject *parts) {
    Py_ssize_t count = PyTuple_Size(parts);
    spread->views = PyMem_Calloc(count ? (size_t)count : 1, sizeof *spread->views);
    spread->entries = PyMem_Calloc(spread->count ? (size_t)spread->count : 1, sizeof *spread->entries);
    if (spread->views == NULL || spread->entries == NULL)
        return false;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *part = PyTuple_GetItem(parts, at);
        if (!PyTuple_Check(part) || PyTuple_Size(part) != 2)
            return false;
        PyObject *ids = PySequence_Tuple(PyTuple_GetItem(part, 0));
        bool good = ids != NULL && spread_part(module, spread, ids, PyTuple_GetItem(part, 1));
        Py_XDECREF(ids);
        if (!good)
            return false;
    }
    for (Py_ssize_t at = 0; at < spread->count; at++)
        if (spread->entries[at] == NULL)
            return false;
    return true;
}

static bool number_of(PyObject *object, const char *name, int64_t *number) {
    PyObject *value = PyObject_GetAttrString(object, name);
    bool good = value != NULL && to_int64(value, number);
    Py_XDECREF(value);
    return good;
}

/* Takes the entries of a SpreadEntries. Returns false as spread_part does, or with an exception set. */
static bool take_spread(PyObject *module, Together *together, PyObject *entries) {
    Spread spread = {0};
    int64_t size;
    PyObject *parts = PyObject_GetAttrString(entries, "parts");
    replace(&parts, parts == NULL ? NULL : PySequence_Tuple(parts));
    spread.count = parts == NULL ? -1 : PyObject_Size(entries);
    bool good = spread.count >= 0 && number_of(entries, "first", &spread.first) && number_of(entries, "size", &size) &&
                size >= ENTRY_START_BYTES && size <= PY_SSIZE_T_MAX;
    if (good) {
        spread.size = (Py_ssize_t)size;
        good = open_spread(module, &spread, parts) && room_for(together, spread.count) &&
               spread.count <= PY_SSIZE_T_MAX / spread.size &&
               room_for_payloads(together, spread.count * (spread.size - ENTRY_START_BYTES));
    }
    for (Py_ssize_t at = 0; good && at < spread.count; at++)
        if (!take(together, spread.entries[at], spread.size))
            break;
    close_spread(&spread);
    Py_XDECREF(parts);
    return good;
}

/* The bytes of entries; -1 with an exception set. */
static Py_ssize_t bytes_of(PyObject *entries) {
    Py_ssize_t total = 0;
    for (Py_ssize_t at = 0; at < PyTuple_Size(entries); at++) {
        Py_ssize_t size = PyObject_Size(PyTuple_GetItem(entries, at));
        if (size < 0)
            return -1;
        if (size > PY_SSIZE_T_MAX - total) {
            PyErr_NoMemory();
            return -1;
        }
        total += size;
    }
    return total;
}

/* Takes entries that are objects. Returns false with an exception set, or without one: the reference is to be called,
   for entries that are long. */
static bool take_each(Together *together, PyObject *entries) {
    Py_ssize_t count = PyTuple_Size(entries), total = bytes_of(entries);
    if (total < 0 || (count && total / count >= COPIED_BYTES && total > count * COPIED_BYTES) ||
        !room_for(together, count) || !room_for_payloads(together, total))
        return false;
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_buffer view;
        if (PyObject_GetBuffer(PyTuple_GetItem(entries, at), &view, PyBUF_SIMPLE) < 0)
            return false;
        bool next = take(together, view.buf, view.len);
        PyBuffer_Release(&view);
        if (!next)
            break;
    }
    return true;
}

/* The payloads of entries of any kind. Returns NULL with an exception set, or without one: the reference is to be
   called. */
static PyObject *open_any(PyObject *module, Together *together, PyObject *entries) {
    PyObject *even_type = imported(module, EVEN_ENTRIES), *spread_type = imported(module, SPREAD_ENTRIES);
    if (even_type == NULL || spread_type == NULL)
        return NULL;
    if ((PyObject *)Py_TYPE(entries) == even_type) {
        Even even;
        if (!even_of(entries, &even))
            return NULL;
        PyObject *payloads = even.size < ENTRY_START_BYTES ? NULL : open_even(module, together, &even);
        Py_DECREF(even.data);
        return payloads;
    }
    if ((PyObject *)Py_TYPE(entries) == spread_type)
        return take_spread(module, together, entries) ? packed_payloads(module, together) : NULL;
    PyObject *each = PySequence_Tuple(entries);
    bool good = each != NULL && take_each(together, each);
    Py_XDECREF(each);
    return good ? packed_payloads(module, together) : NULL;
}

PyObject *open_together(ARGUMENTS) {
    static const Signature SIGNATURE = {
        "open_together", {"entries", "ledger", "first", "digests", "digest_bytes"}, 5, 5};
    PyObject *bound[5], *lacs = NULL, *lengths = NULL, *payloads = NULL, *run = NULL;
    int64_t digest_bytes;
    Together together = {0};
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[4], &digest_bytes))
        return NULL;
    if (bound[3] != state_of(module)->crc32c_digests || digest_bytes != 4)
        return call_reference(module, &SIGNATURE, bound);
    if (!to_int64(bound[1], &together.ledger) || !to_int64(bound[2], &together.first))
        return NULL;
    PyObject *type = imported(module, ENTRY_RUN);
    payloads = type == NULL ? NULL : open_any(module, &together, bound[0]);
    if (payloads != NULL && (lacs = number_array(module, 'q', together.lacs, together.count)) != NULL &&
        (lengths = number_array(module, 'q', together.lengths, together.count)) != NULL)
        run = PyObject_CallFunctionObjArgs(type, bound[1], bound[2], lacs, lengths, payloads, NULL);
    else if (payloads == NULL && !PyErr_Occurred())
        run = call_reference(module, &SIGNATURE, bound);
    release(&together);
    Py_XDECREF(lacs);
    Py_XDECREF(lengths);
    Py_XDECREF(payloads);
    return run;
}
