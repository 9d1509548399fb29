/* Hashes of messages' client ids: twin of codec/client_ids.py. */

#include "codec.h"

#define UNIQUE "\2UNIQ_KEY\1"
#define UNIQUE_BYTES ((Py_ssize_t)sizeof UNIQUE - 1)
#define END 2

typedef struct {
    const uint8_t *start;
    Py_ssize_t count;
} Text;

/* Where the id stands in the first message's properties. */
typedef struct {
    Text first;
    Py_ssize_t head_end; /* where the end before its name is; -1 if it is the first property */
    Py_ssize_t at;
    Py_ssize_t end;
} Place;

static bool read_text(PyObject *texts, Py_ssize_t at, Text *text) {
    PyObject *object = PyTuple_GetItem(texts, at);
    char *start;
    if (object == NULL || !PyBytes_Check(object) || PyBytes_AsStringAndSize(object, &start, &text->count) < 0)
        return false;
    text->start = (const uint8_t *)start;
    return true;
}

/* The last one counts. Returns false if there is no id. */
static bool find_id(Place *place) {
    const Text *first = &place->first;
    Py_ssize_t at = first->count - UNIQUE_BYTES;
    while (at >= 0 && memcmp(first->start + at, UNIQUE, (size_t)UNIQUE_BYTES))
        at--;
    if (at < 0 && (first->count < UNIQUE_BYTES - 1 || memcmp(first->start, &UNIQUE[1], (size_t)UNIQUE_BYTES - 1)))
        return false;
    place->head_end = at < 0 ? -1 : at;
    place->at = place->head_end + UNIQUE_BYTES;
    const uint8_t *end = memchr(first->start + place->at, END, (size_t)(first->count - place->at));
    place->end = end == NULL ? first->count : end - first->start;
    return place->end > place->at;
}

static bool is_alike(const Place *place, const Text *text) {
    const Text *first = &place->first;
    return text->count == first->count && !memcmp(text->start, first->start, (size_t)place->at) &&
           !memcmp(text->start + place->end, first->start + place->end, (size_t)(first->count - place->end)) &&
           memchr(text->start + place->at, END, (size_t)(place->end - place->at)) == NULL;
}

bool hash_ascii(const uint8_t *text, Py_ssize_t count, uint32_t *hash) {
    uint8_t any = 0;
    uint32_t value = *hash;
    for (; count >= 4; text += 4, count -= 4) {
        any |= text[0] | text[1] | text[2] | text[3];
        value = value * 923521u + (text[0] * 29791u + text[1] * 961u + text[2] * 31u + text[3]);
    }
    for (; count; text++, count--) {
        any |= *text;
        value = value * 31u + *text;
    }
    *hash = value;
    return any < 128;
}

static PyObject *bytes_of(const uint8_t *start, Py_ssize_t count) {
    return PyBytes_FromStringAndSize((const char *)start, count);
}

/* What is before the id, as if an end stood before all of it. */
static PyObject *head_of(const Place *place) {
    PyObject *head = bytes_of(NULL, place->head_end + 1);
    if (head != NULL && place->head_end >= 0) {
        char *start = PyBytes_AsString(head);
        start[0] = END;
        memcpy(start + 1, place->first.start, (size_t)place->head_end);
    }
    return head;
}

static PyObject *tail_of(const Place *place) {
    Py_ssize_t at = place->end < place->first.count ? place->end + 1 : place->end;
    return bytes_of(place->first.start + at, place->first.count - at);
}

/* Puts the hash of each id into a list. Returns 1; 0 if not all properties are alike; -1 if they are unusual, or with an
   exception set. */
static int hash_ids(const Place *place, PyObject *properties, uint32_t seed, PyObject *hashes) {
    for (Py_ssize_t at = 0; at < PyList_Size(hashes); at++) {
        Text text;
        uint32_t hash = seed;
        if (!read_text(properties, at, &text))
            return -1;
        if (!is_alike(place, &text))
            return 0;
        if (!hash_ascii(text.start + place->at, place->end - place->at, &hash) ||
            !put(hashes, at, PyLong_FromUnsignedLong(hash)))
            return -1;
    }
    return 1;
}

PyObject *hash_client_ids(ARGUMENTS) {
    static const Signature SIGNATURE = {"hash_client_ids", {"properties", "seed"}, 2, 2};
    PyObject *bound[2], *head = NULL, *tail = NULL, *result = NULL;
    if (!bind_arguments(&SIGNATURE, args, nargs, kwnames, bound))
        return NULL;
    PyObject *properties = PySequence_Tuple(bound[0]); /* its own: nobody can change it meanwhile */
    PyObject *hashes = properties == NULL ? NULL : PyList_New(PyTuple_Size(properties));
    int64_t seed;
    Place place;
    if (hashes == NULL)
        goto done;
    bool usual = PyLong_Check(bound[1]) && to_int64(bound[1], &seed) && seed >= 0 && seed <= UINT32_MAX;
    int outcome = usual && PyList_Size(hashes) && read_text(properties, 0, &place.first) ? find_id(&place) : -1;
    if (outcome == 1)
        outcome = hash_ids(&place, properties, (uint32_t)seed, hashes);
    if (outcome == 1) {
        if ((head = head_of(&place)) != NULL && (tail = tail_of(&place)) != NULL)
            result = PyTuple_Pack(3, head, tail, hashes);
    } else if (outcome == 0) {
        Py_INCREF(Py_None);
        result = Py_None;
    } else {
        PyErr_Clear();
        result = call_reference(module, &SIGNATURE, bound);
    }
done:
    Py_XDECREF(properties);
    Py_XDECREF(hashes);
    Py_XDECREF(head);
    Py_XDECREF(tail);
    return result;
}
