/* Positions of messages as texts: twin of codec/positions.py. */

#include "codec.h"

#define MOST_DIGITS 20 /* and sign */
#define MOST_BYTES (3 * MOST_DIGITS + 2)

/* Writes a number. Returns the place behind it. */
static char *write_number(char *place, int64_t number) {
    char digits[MOST_DIGITS];
    int count = 0;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    if (number < 0)
        *place++ = '-';
    do
        digits[count++] = (char)('0' + rest % 10);
    while ((rest /= 10) != 0);
    while (count)
        *place++ = digits[--count];
    return place;
}

/* (texts, ends) of so many messages. */
static PyObject *texts_of(int64_t ledger, const Py_buffer *entries, const Py_buffer *indexes, Py_ssize_t count) {
    PyObject *ends = NULL, *texts = NULL;
    char front[MOST_BYTES], *place = NULL;
    size_t front_bytes = (size_t)(write_number(front, ledger) - front);
    if (count > INT32_MAX / MOST_BYTES)
        return PyErr_NoMemory();
    char *room = PyMem_Malloc(count ? (size_t)count * MOST_BYTES : 1);
    if (room == NULL)
        return PyErr_NoMemory();
    front[front_bytes++] = ':';
    ends = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int32_t));
    char *end_places = ends == NULL ? NULL : PyBytes_AsString(ends);
    place = room;
    for (Py_ssize_t at = 0; ends != NULL; at++) {
        int32_t end = (int32_t)(place - room);
        memcpy(end_places + at * (Py_ssize_t)sizeof end, &end, sizeof end);
        if (at == count)
            break;
        memcpy(place, front, front_bytes);
        place = write_number(place + front_bytes, number_at(entries, at));
        if (number_at(indexes, at) >= 0) {
            *place++ = ':';
            place = write_number(place, number_at(indexes, at));
        }
    }
    if (ends != NULL)
        texts = Py_BuildValue("(y#O)", room, (Py_ssize_t)(place - room), ends);
    PyMem_Free(room);
    Py_XDECREF(ends);
    return texts;
}

PyObject *position_texts(ARGUMENTS) {
    static const Signature SIGNATURE = {"position_texts", {"ledger", "entries", "indexes"}, 3, 3};
    PyObject *bound[3], *texts = NULL;
    Py_buffer entries, indexes;
    int64_t ledger;
    (void)module;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound) || !to_int64(bound[0], &ledger) ||
        !open_column(&entries, bound[1]))
        return NULL;
    if (open_column(&indexes, bound[2])) {
        if (entries.len == indexes.len)
            texts = texts_of(ledger, &entries, &indexes, entries.len / (Py_ssize_t)sizeof(int64_t));
        else
            PyErr_SetString(PyExc_ValueError, "there are as many entries as indexes");
        PyBuffer_Release(&indexes);
    }
    PyBuffer_Release(&entries);
    return texts;
}
