/* Where entries are, by pages: twin of codec/pages.py. */

#include "codec.h"

#define PAGE_BITS 12
#define PAGE_SLOTS (1 << PAGE_BITS)
#define PADDING 16

/* Whether entries ascend from 0 on at least, and no location is too high for 64 bits. */
static bool are_plain(const Py_buffer *entries, const Py_buffer *starts, Py_ssize_t count, uint64_t base) {
    int64_t before = -1;
    for (Py_ssize_t at = 0; at < count; at++) {
        int64_t entry = number_at(entries, at);
        if (entry <= before || (uint64_t)number_at(starts, at) > UINT64_MAX - base)
            return false;
        before = entry;
    }
    return true;
}

/* Appends the piece that begins here. Returns where the next one does, 0 with an exception set. */
static Py_ssize_t add_piece(PyObject *module, PyObject *pieces, const Py_buffer *entries, const Py_buffer *starts,
                            Py_ssize_t at, Py_ssize_t count, uint64_t base) {
    int64_t locations[PAGE_SLOTS], first = number_at(entries, at), last = first;
    for (; at < count; at++) {
        int64_t entry = number_at(entries, at);
        if (entry >> PAGE_BITS != first >> PAGE_BITS || entry - last > PADDING + 1)
            break;
        for (; entry - last > 1; last++) /* of the highest id there is no next one */
            locations[last + 1 - first] = 0;
        last = entry;
        locations[entry - first] = (int64_t)(base + (uint64_t)number_at(starts, at));
    }
    PyObject *made = number_array(module, 'Q', locations, (Py_ssize_t)(last - first + 1));
    PyObject *piece = made == NULL ? NULL
                                   : Py_BuildValue("(LiN)", (long long)(first >> PAGE_BITS),
                                                   (int)(first & (PAGE_SLOTS - 1)), made);
    return append(pieces, piece) ? at : 0;
}

PyObject *page_pieces(ARGUMENTS) {
    static const Signature SIGNATURE = {"page_pieces", {"entries", "starts", "base"}, 3, 3};
    PyObject *bound[3], *pieces = NULL;
    Py_buffer entries, starts;
    int64_t base;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[2], &base) ||
        !open_column(&entries, bound[0]))
        return NULL;
    if (!open_column(&starts, bound[1])) {
        PyBuffer_Release(&entries);
        return NULL;
    }
    Py_ssize_t count = entries.len / (Py_ssize_t)sizeof(int64_t);
    bool plain = base >= 0 && starts.len == entries.len && are_plain(&entries, &starts, count, (uint64_t)base);
    if (plain)
        pieces = PyList_New(0);
    for (Py_ssize_t at = 0; pieces != NULL && at < count;) {
        at = add_piece(module, pieces, &entries, &starts, at, count, (uint64_t)base);
        if (!at)
            Py_CLEAR(pieces);
    }
    PyBuffer_Release(&starts);
    PyBuffer_Release(&entries);
    return plain ? pieces : call_reference(module, &SIGNATURE, bound);
}
