/* Entries that were read each by itself, in any order: twin of open_singles of codec/reads.py. */

#include "codec.h"

/* (payload, length, LAC) of an entry, or None if these bytes are not this one. */
static PyObject *single_of(const uint8_t *entry, Py_ssize_t size, int64_t ledger, int64_t id) {
    if (!is_entry(entry, size, ledger, id)) {
        Py_INCREF(Py_None);
        return Py_None;
    }
    return Py_BuildValue("(y#LL)", (const char *)entry + ENTRY_START_BYTES, size - ENTRY_START_BYTES,
                         (long long)read_i64(entry + 24), (long long)read_i64(entry + 16));
}

/* The entries of an EvenEntries, one for each id. */
static PyObject *even_singles(PyObject *ids, PyObject *entries, int64_t ledger) {
    Even even;
    Py_buffer view;
    PyObject *opened = NULL;
    Py_ssize_t count = PyTuple_Size(ids), step;
    if (!even_of(entries, &even) || PyObject_GetBuffer(even.data, &view, PyBUF_SIMPLE) < 0) {
        Py_XDECREF(even.data);
        return NULL;
    }
    step = even.gap + even.size;
    if (view.len % step || view.len / step != count)
        PyErr_SetString(PyExc_ValueError, "there are as many ids as entries");
    else
        opened = PyList_New(count);
    for (Py_ssize_t at = 0; opened != NULL && at < count; at++) {
        const uint8_t *entry = (const uint8_t *)view.buf + at * step + even.gap;
        int64_t id;
        if (!to_int64(PyTuple_GetItem(ids, at), &id) || !put(opened, at, single_of(entry, even.size, ledger, id)))
            Py_CLEAR(opened);
    }
    PyBuffer_Release(&view);
    Py_DECREF(even.data);
    return opened;
}

/* Entries that are objects, one for each id. */
static PyObject *each_single(PyObject *ids, PyObject *entries, int64_t ledger) {
    Py_ssize_t count = PyTuple_Size(ids);
    if (PyTuple_Size(entries) != count) {
        PyErr_SetString(PyExc_ValueError, "there are as many ids as entries");
        return NULL;
    }
    PyObject *opened = PyList_New(count);
    for (Py_ssize_t at = 0; opened != NULL && at < count; at++) {
        Py_buffer view;
        int64_t id;
        if (!to_int64(PyTuple_GetItem(ids, at), &id) ||
            PyObject_GetBuffer(PyTuple_GetItem(entries, at), &view, PyBUF_SIMPLE) < 0) {
            Py_CLEAR(opened);
            break;
        }
        if (!put(opened, at, single_of(view.buf, view.len, ledger, id)))
            Py_CLEAR(opened);
        PyBuffer_Release(&view);
    }
    return opened;
}

PyObject *open_singles(ARGUMENTS) {
    static const Signature SIGNATURE = {
        "open_singles", {"ids", "entries", "ledger", "digests", "digest_bytes"}, 5, 5};
    PyObject *bound[5], *even, *ids, *entries = NULL, *opened = NULL;
    int64_t digest_bytes, ledger;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[4], &digest_bytes))
        return NULL;
    if (bound[3] != state_of(module)->crc32c_digests || digest_bytes != 4)
        return call_reference(module, &SIGNATURE, bound);
    if (!to_int64(bound[2], &ledger) || (even = imported(module, EVEN_ENTRIES)) == NULL)
        return NULL;
    if ((ids = PySequence_Tuple(bound[0])) == NULL)
        return NULL;
    if ((PyObject *)Py_TYPE(bound[1]) == even)
        opened = even_singles(ids, bound[1], ledger);
    else if ((entries = PySequence_Tuple(bound[1])) != NULL)
        opened = each_single(ids, entries, ledger);
    Py_XDECREF(entries);
    Py_DECREF(ids);
    return opened;
}
