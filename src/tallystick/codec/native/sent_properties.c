/* Properties of messages that are sent: twin of codec/sent_properties.py. */

#include "codec.h"

#define IS 1
#define END 2

typedef struct {
    const char *start;
    Py_ssize_t count;
} Text;

#define TEXT(literal) {literal, (Py_ssize_t)sizeof literal - 1}

/* That mean something to a broker; a separator follows. */
static const Text BROKERS[] = {TEXT("DELAY"),     TEXT("TRAN_MSG"), TEXT("POP_CK"),    TEXT("INNER_NUM"), TEXT("CLUSTER"),
                               TEXT("MSG_REGION"), TEXT("TRACE_ON"), TEXT("TALLY_SINK")};
static const Text TIMERS = TEXT("TIMER_DEL"); /* with which names begin */
static const Text UNIQ_KEY = TEXT("UNIQ_KEY\1"), WAIT = TEXT("WAIT\1"), WAIT_TRUE = TEXT("\2WAIT\1true\2");
static const Text LAST_WAIT_TRUE = TEXT("\2WAIT\1true"); /* of properties that lack their end */

static bool stands_at(const Text *text, Py_ssize_t at, const Text *part) {
    return at >= 0 && text->count - at >= part->count && !memcmp(text->start + at, part->start, (size_t)part->count);
}

static Py_ssize_t find_byte(const Text *text, Py_ssize_t from, char byte) {
    if (from >= text->count)
        return -1;
    const char *place = memchr(text->start + from, byte, (size_t)(text->count - from));
    return place == NULL ? -1 : place - text->start;
}

static Py_ssize_t find_text(const Text *text, Py_ssize_t from, const Text *part) {
    Py_ssize_t at = find_byte(text, from, part->start[0]);
    while (at >= 0 && !stands_at(text, at, part))
        at = find_byte(text, at + 1, part->start[0]);
    return at;
}

static bool has_broker_properties(const Text *text) {
    for (Py_ssize_t at = find_byte(text, 0, IS); at >= 0; at = find_byte(text, at + 1, IS))
        for (size_t number = 0; number < sizeof BROKERS / sizeof *BROKERS; number++)
            if (stands_at(text, at - BROKERS[number].count, &BROKERS[number]))
                return true;
    return find_text(text, 0, &TIMERS) >= 0;
}

/* The value of a property; one without a start if it is not there. */
static Text value_of(const Text *text, const Text *name) {
    Text value = {NULL, 0};
    Py_ssize_t at = find_text(text, 0, name);
    while (at > 0 && text->start[at - 1] != END)
        at = find_text(text, at + 1, name);
    if (at >= 0) {
        Py_ssize_t start = at + name->count, end = find_byte(text, start, END);
        value.start = text->start + start;
        value.count = (end >= 0 ? end : text->count) - start;
    }
    return value;
}

static bool waits_for_store(const Text *text) {
    static const char LOWER[] = "true";
    if (find_text(text, 0, &WAIT_TRUE) >= 0 || stands_at(text, text->count - LAST_WAIT_TRUE.count, &LAST_WAIT_TRUE))
        return true;
    Text value = value_of(text, &WAIT);
    if (value.start == NULL)
        return true;
    bool is_true = value.count == 4;
    for (int at = 0; is_true && at < 4; at++)
        is_true = (value.start[at] | 32) == LOWER[at];
    return is_true;
}

/* The properties, an end that they may lack, and those of the broker. */
static PyObject *stored(const Text *text, bool lacks_end, PyObject *brokers) {
    Py_ssize_t count = PyBytes_Size(brokers), before = text->count + lacks_end;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, before + count);
    if (bytes != NULL) {
        char *to = PyBytes_AsString(bytes);
        memcpy(to, text->start, (size_t)text->count);
        to[before - 1] = END;
        memcpy(to + before, PyBytes_AsString(brokers), (size_t)count);
    }
    return bytes;
}

PyObject *usual_properties(ARGUMENTS) {
    static const Signature SIGNATURE = {"usual_properties", {"properties", "brokers"}, 2, 2};
    PyObject *bound[2];
    Text text;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    if (!PyUnicode_Check(bound[0]) || !PyBytes_Check(bound[1]) ||
        (text.start = PyUnicode_AsUTF8AndSize(bound[0], &text.count)) == NULL) {
        PyErr_Clear();
        return call_reference(module, &SIGNATURE, bound);
    }
    Text key = value_of(&text, &UNIQ_KEY);
    if (!key.count || has_broker_properties(&text)) {
        Py_INCREF(Py_None);
        return Py_None;
    }
    bool lacks_end = text.start[text.count - 1] != END;
    PyObject *bytes = stored(&text, lacks_end, bound[1]);
    PyObject *name = bytes == NULL ? NULL : PyUnicode_DecodeUTF8(key.start, key.count, NULL), *result = NULL;
    if (name != NULL)
        result = PyTuple_Pack(3, bytes, name, waits_for_store(&text) ? Py_True : Py_False);
    Py_XDECREF(bytes);
    Py_XDECREF(name);
    return result;
}
