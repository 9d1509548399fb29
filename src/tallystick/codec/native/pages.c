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

/* A dense page, held until it is left. */
typedef struct {
    int64_t number;
    bool is_open;
    Py_buffer slots;
} Page;

static void leave_page(Page *page) {
    if (page->is_open)
        PyBuffer_Release(&page->slots);
    page->is_open = false;
}

/* Leaves a page for another, which may be missing: then none is open. Returns false with an exception set. */
static bool turn_to_page(Page *page, PyObject *pages, int64_t number) {
    leave_page(page);
    page->number = number;
    PyObject *key = PyLong_FromLongLong((long long)number);
    PyObject *slots = key == NULL ? NULL : PyDict_GetItemWithError(pages, key); /* borrowed */
    Py_XDECREF(key);
    if (slots == NULL)
        return !PyErr_Occurred();
    page->is_open = open_column(&page->slots, slots);
    return page->is_open;
}

/* Writes the location of each entry, up to the first that has none. Returns how many, -1 with an exception set. */
static Py_ssize_t find_locations(PyObject *pages, const Py_buffer *entries, Py_ssize_t count, int64_t *locations) {
    Page page = {0, false, {0}};
    Py_ssize_t at = 0;
    for (; at < count; at++) {
        int64_t entry = number_at(entries, at);
        Py_ssize_t slot = (Py_ssize_t)(entry & (PAGE_SLOTS - 1));
        if ((!at || entry >> PAGE_BITS != page.number) && !turn_to_page(&page, pages, entry >> PAGE_BITS))
            return -1;
        if (!page.is_open || slot >= page.slots.len / (Py_ssize_t)sizeof(int64_t))
            break;
        locations[at] = number_at(&page.slots, slot);
        if (!locations[at])
            break;
    }
    leave_page(&page);
    return at;
}

/* NULL with an exception set. */
static PyObject *located(PyObject *module, PyObject *pages, const Py_buffer *entries) {
    Py_ssize_t count = entries->len / (Py_ssize_t)sizeof(int64_t);
    int64_t *locations = PyMem_Malloc(((size_t)count + 1) * sizeof *locations);
    PyObject *result = NULL;
    if (locations == NULL)
        PyErr_NoMemory();
    else if ((count = find_locations(pages, entries, count, locations)) >= 0)
        result = number_array(module, 'Q', locations, count);
    PyMem_Free(locations);
    return result;
}

PyObject *dense_locations(ARGUMENTS) {
    static const Signature SIGNATURE = {"dense_locations", {"pages", "entries"}, 2, 2};
    PyObject *bound[2], *result = NULL;
    Py_buffer entries;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    if (PyDict_Check(bound[0]) && open_column(&entries, bound[1])) {
        result = located(module, bound[0], &entries);
        PyBuffer_Release(&entries);
    }
    if (result != NULL)
        return result;
    PyErr_Clear();
    return call_reference(module, &SIGNATURE, bound);
}
