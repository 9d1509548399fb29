/* Where the messages of a pull are in the log: twin of codec/unit_runs.py. */

#include "codec.h"

#define UNIT_BYTES 20
#define FILLER_SIZE INT32_MAX
#define LARGEST_END ((int64_t)1 << 62) /* less or more by a record has a place, too */

enum { UNITS, FIRST, END, FILE_BYTES, RECENT, LIMITS, TAGS, ARGUMENT_COUNT };

typedef struct {
    int64_t first, end, file_bytes, recent;
    int64_t limits[4]; /* messages and bytes of what is recent, then of the rest */
    PyObject *tags;    /* NULL: all */
} Choice;

typedef struct {
    PyObject *list;
    int64_t start, stop; /* of the last run, which is not in the list yet */
    int64_t count, total, physical;
    Py_ssize_t passed;
    bool is_lost;
} Runs;

static bool read_choice(PyObject *const *bound, Choice *choice) {
    if (!to_int64(bound[FIRST], &choice->first) || !to_int64(bound[END], &choice->end) ||
        !to_int64(bound[FILE_BYTES], &choice->file_bytes) || !to_int64(bound[RECENT], &choice->recent) ||
        !PyTuple_Check(bound[LIMITS]) || PyTuple_Size(bound[LIMITS]) != 4)
        return false;
    for (Py_ssize_t at = 0; at < 4; at++)
        if (!to_int64(PyTuple_GetItem(bound[LIMITS], at), &choice->limits[at]))
            return false;
    choice->tags = bound[TAGS] == Py_None ? NULL : bound[TAGS];
    return choice->first >= 0 && choice->end >= 0 && choice->end <= LARGEST_END && choice->file_bytes > 0;
}

/* 1 if a message with such a tag counts, 0 if not, -1 with an exception set. */
static int has_tag(PyObject *tags, int64_t tags_code) {
    if (tags == NULL)
        return 1;
    PyObject *code = PyLong_FromLongLong(tags_code);
    int is_in = code == NULL ? -1 : PySequence_Contains(tags, code);
    Py_XDECREF(code);
    return is_in;
}

static bool end_run(Runs *runs) {
    return runs->stop <= runs->start ||
           append(runs->list, Py_BuildValue("(LL)", (long long)runs->start, (long long)runs->stop));
}

/* Adds the message of a unit, if there is one that counts. Returns false with an exception set. */
static bool add_message(Runs *runs, const Choice *choice, int64_t size, int64_t tags_code) {
    int64_t physical = runs->physical;
    int counts = size == FILLER_SIZE ? 0 : has_tag(choice->tags, tags_code);
    if (counts <= 0)
        return counts == 0;
    if (physical < choice->first || physical > choice->end - size) {
        runs->is_lost |= runs->count == 0;
        return true;
    }
    if (physical != runs->stop || physical % choice->file_bytes == 0) {
        if (!end_run(runs))
            return false;
        runs->start = physical;
    }
    runs->stop = physical + size;
    runs->count++, runs->total += size;
    return true;
}

static bool add_runs(Runs *runs, const Choice *choice, const uint8_t *unit, Py_ssize_t count) {
    for (; count; count--, unit += UNIT_BYTES) {
        int64_t size = read_i32(unit + 8);
        runs->physical = read_i64(unit);
        if (runs->count) {
            const int64_t *limits = choice->limits + (runs->physical >= choice->recent ? 0 : 2);
            if (runs->count >= limits[0] || runs->total + size > limits[1])
                break;
        }
        runs->passed++;
        if (!add_message(runs, choice, size, read_i64(unit + 12)))
            return false;
    }
    return end_run(runs);
}

PyObject *runs_of_units(ARGUMENTS) {
    static const Signature SIGNATURE = {
        "runs_of_units", {"units", "first", "end", "file_bytes", "recent", "limits", "tags"}, 7, 7};
    PyObject *bound[ARGUMENT_COUNT];
    Choice choice;
    char *units;
    Py_ssize_t size;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    if (!PyBytes_Check(bound[UNITS]) || PyBytes_AsStringAndSize(bound[UNITS], &units, &size) < 0 ||
        size % UNIT_BYTES || !read_choice(bound, &choice)) {
        PyErr_Clear();
        return call_reference(module, &SIGNATURE, bound);
    }
    Runs runs = {.list = PyList_New(0), .start = -1, .stop = -1};
    if (runs.list == NULL || !add_runs(&runs, &choice, (const uint8_t *)units, size / UNIT_BYTES)) {
        Py_XDECREF(runs.list);
        return NULL;
    }
    return Py_BuildValue("(NLLnLO)", runs.list, (long long)runs.count, (long long)runs.total, runs.passed,
                         (long long)runs.physical, runs.is_lost ? Py_True : Py_False);
}
