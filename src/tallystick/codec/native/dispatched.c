/* What dispatched records add to queues and index: twins of codec/dispatched.py. */

#include "codec.h"

#define UNIT_BYTES 20
#define ENTRY_BYTES 20
#define PREVIOUS_AT 16
#define PAGE_BITS 10
#define LARGEST_TIME ((int64_t)1 << 62) /* two of them differ by a number that has a place */

/* Number at of a list, if it is from least to most. Returns false without an exception. */
static bool number_in(PyObject *list, Py_ssize_t at, int64_t least, int64_t most, int64_t *number) {
    PyObject *object = PyList_GetItem(list, at);
    if (object != NULL && PyLong_Check(object) && to_int64(object, number))
        return *number >= least && *number <= most;
    PyErr_Clear();
    return false;
}

/* Whether three lists are as long as each other. */
static bool are_columns(PyObject *const *lists) {
    return PyList_Check(lists[0]) && PyList_Check(lists[1]) && PyList_Check(lists[2]) &&
           PyList_Size(lists[0]) == PyList_Size(lists[1]) && PyList_Size(lists[0]) == PyList_Size(lists[2]);
}

/* Room for so many rows; NULL, perhaps with an exception set, if there is none. */
static PyObject *rows_of(Py_ssize_t count, Py_ssize_t row) {
    return count > PY_SSIZE_T_MAX / row ? NULL : PyBytes_FromStringAndSize(NULL, count * row);
}

PyObject *encode_units(ARGUMENTS) {
    static const Signature SIGNATURE = {"encode_units", {"physicals", "sizes", "tags_codes"}, 3, 3};
    PyObject *bound[3], *units = NULL;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    Py_ssize_t count = are_columns(bound) ? PyList_Size(bound[0]) : -1;
    if (count < 0 || (units = rows_of(count, UNIT_BYTES)) == NULL)
        return PyErr_Occurred() ? NULL : call_reference(module, &SIGNATURE, bound);
    uint8_t *unit = (uint8_t *)PyBytes_AsString(units);
    for (Py_ssize_t at = 0; at < count; at++, unit += UNIT_BYTES) {
        int64_t physical, size, tags_code;
        if (!number_in(bound[0], at, INT64_MIN, INT64_MAX, &physical) ||
            !number_in(bound[1], at, INT32_MIN, INT32_MAX, &size) ||
            !number_in(bound[2], at, INT64_MIN, INT64_MAX, &tags_code)) {
            Py_DECREF(units);
            return call_reference(module, &SIGNATURE, bound);
        }
        write_u64(unit, (uint64_t)physical);
        write_u32(unit + 8, (uint32_t)size);
        write_u64(unit + 12, (uint64_t)tags_code);
    }
    return units;
}

enum { HASHES, PHYSICALS, STORED_MS, BEGIN_MS, NUMBER, SLOTS, DIRTY_PAGES, ARGUMENT_COUNT };

/* Everything of the entries but what was in the slots before. Returns false for a number without a place. */
static bool put_keys(uint8_t *entry, Py_ssize_t count, PyObject *const *bound, int64_t begin_ms) {
    for (Py_ssize_t at = 0; at < count; at++, entry += ENTRY_BYTES) {
        int64_t hash, physical, stored_ms;
        if (!number_in(bound[HASHES], at, 0, INT32_MAX, &hash) ||
            !number_in(bound[PHYSICALS], at, INT64_MIN, INT64_MAX, &physical) ||
            !number_in(bound[STORED_MS], at, -LARGEST_TIME, LARGEST_TIME, &stored_ms))
            return false;
        int64_t seconds = stored_ms > begin_ms ? (stored_ms - begin_ms) / 1000 : 0;
        write_u32(entry, (uint32_t)hash);
        write_u64(entry + 4, (uint64_t)physical);
        write_u32(entry + 12, (uint32_t)(seconds < INT32_MAX ? seconds : INT32_MAX));
    }
    return true;
}

/* Puts the entries into their slots, and what was there into the entries. Returns how many slots were free. */
static Py_ssize_t chain(uint8_t *entry, Py_ssize_t count, int64_t number, const Py_buffer *slots, uint8_t *dirty_pages) {
    int32_t *newest = slots->buf;
    uint32_t slot_count = (uint32_t)(slots->len / (Py_ssize_t)sizeof *newest);
    Py_ssize_t free_slots = 0;
    for (Py_ssize_t at = 0; at < count; at++, entry += ENTRY_BYTES) {
        uint32_t slot = read_u32(entry) % slot_count;
        free_slots += newest[slot] == 0;
        write_u32(entry + PREVIOUS_AT, (uint32_t)newest[slot]);
        newest[slot] = (int32_t)(number + at);
        dirty_pages[slot >> PAGE_BITS] = 1;
    }
    return free_slots;
}

/* Whether there are slots of 32 bits, and a page for each of them. */
static bool are_slots(const Py_buffer *slots, const Py_buffer *dirty_pages) {
    Py_ssize_t count = slots->len / (Py_ssize_t)sizeof(int32_t);
    return slots->itemsize == sizeof(int32_t) && count > 0 && count <= INT32_MAX &&
           (count - 1) >> PAGE_BITS < dirty_pages->len;
}

PyObject *add_index_entries(ARGUMENTS) {
    static const Signature SIGNATURE = {
        "add_index_entries",
        {"hashes", "physicals", "stored_ms", "begin_ms", "number", "slots", "dirty_pages"}, 7, 7};
    PyObject *bound[ARGUMENT_COUNT], *entries = NULL;
    Py_buffer slots, dirty_pages;
    int64_t begin_ms, number;
    Py_ssize_t free_slots = 0;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    Py_ssize_t count = are_columns(bound) ? PyList_Size(bound[0]) : -1;
    bool good = count >= 0 && to_int64(bound[BEGIN_MS], &begin_ms) && to_int64(bound[NUMBER], &number) &&
                begin_ms >= -LARGEST_TIME && begin_ms <= LARGEST_TIME && number >= 0 && count <= INT32_MAX &&
                number <= INT32_MAX - count && PyByteArray_Check(bound[DIRTY_PAGES]) &&
                PyObject_GetBuffer(bound[SLOTS], &slots, PyBUF_WRITABLE) == 0;
    if (good) {
        if ((good = PyObject_GetBuffer(bound[DIRTY_PAGES], &dirty_pages, PyBUF_WRITABLE) == 0)) {
            good = are_slots(&slots, &dirty_pages) && (entries = rows_of(count, ENTRY_BYTES)) != NULL;
            if (good && (good = put_keys((uint8_t *)PyBytes_AsString(entries), count, bound, begin_ms)))
                free_slots = chain((uint8_t *)PyBytes_AsString(entries), count, number, &slots, dirty_pages.buf);
            PyBuffer_Release(&dirty_pages);
        }
        PyBuffer_Release(&slots);
    }
    if (!good) {
        Py_XDECREF(entries);
        PyErr_Clear();
        return call_reference(module, &SIGNATURE, bound);
    }
    return Py_BuildValue("(Nn)", entries, free_slots);
}
