/* Arguments and results: how Python's objects become numbers and bytes, and back. */

#include "codec.h"

bool bind_arguments(const Signature *signature, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                    PyObject **bound) {
    if (nargs > signature->positional) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d positional arguments, not %zd", signature->name,
                     signature->positional, nargs);
        return false;
    }
    for (int at = 0; signature->arguments[at] != NULL; at++)
        bound[at] = at < nargs ? args[at] : NULL;
    Py_ssize_t named = kwnames == NULL ? 0 : PyTuple_Size(kwnames);
    for (Py_ssize_t keyword = 0; keyword < named; keyword++) {
        PyObject *name = PyTuple_GetItem(kwnames, keyword);
        int at = 0;
        while (signature->arguments[at] != NULL && PyUnicode_CompareWithASCIIString(name, signature->arguments[at]))
            at++;
        if (signature->arguments[at] == NULL || bound[at] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() takes no such argument, or has it twice: %R", signature->name, name);
            return false;
        }
        bound[at] = args[nargs + keyword];
    }
    for (int at = 0; at < signature->required; at++) {
        if (bound[at] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() misses the argument '%s'", signature->name, signature->arguments[at]);
            return false;
        }
    }
    return true;
}

static const struct {
    const char *module;
    const char *name;
    const char *member;
} PLACES[IMPORTED_COUNT] = {
    [ADD_RUN] = {"tallystick.codec.frames", "AddRun", NULL},
    [ADD_FRAMES] = {"tallystick.codec.frames", "AddFrames", NULL},
    [V3_ADD_RUN] = {"tallystick.codec.v3_adds", "V3AddRun", NULL},
    [EVEN_ENTRIES] = {"tallystick.codec.reads", "EvenEntries", NULL},
    [SPREAD_ENTRIES] = {"tallystick.codec.reads", "SpreadEntries", NULL},
    [ENTRY_RUN] = {"tallystick.codec.reads", "EntryRun", NULL},
    [PACKED_ENTRIES] = {"tallystick.codec.reads", "PackedEntries", NULL},
    [RECORD_RUN] = {"tallystick.codec.records", "RecordRun", NULL},
    [PULLED_RUN] = {"tallystick.codec.pulled", "PulledRun", NULL},
    [STOP_END] = {"tallystick.codec.records", "Stop", "END"},
    [STOP_PARTIAL] = {"tallystick.codec.records", "Stop", "PARTIAL"},
    [STOP_BLANK] = {"tallystick.codec.records", "Stop", "BLANK"},
    [STOP_NOTHING] = {"tallystick.codec.records", "Stop", "NOTHING"},
    [STOP_DAMAGED] = {"tallystick.codec.records", "Stop", "DAMAGED"},
    [ARRAY] = {"array", "array", NULL},
    [REFERENCES] = {"tallystick.codec.implementation", "REFERENCES", NULL},
};

PyObject *imported(PyObject *module, Imported which) {
    PyObject **place = &state_of(module)->imported[which];
    if (*place == NULL) {
        PyObject *from = PyImport_ImportModule(PLACES[which].module);
        PyObject *object = from == NULL ? NULL : PyObject_GetAttrString(from, PLACES[which].name);
        Py_XDECREF(from);
        if (object != NULL && PLACES[which].member != NULL) {
            PyObject *member = PyObject_GetAttrString(object, PLACES[which].member);
            Py_DECREF(object);
            object = member;
        }
        *place = object;
    }
    return *place;
}

PyObject *call_reference(PyObject *module, const Signature *signature, PyObject *const *bound) {
    PyObject *references = imported(module, REFERENCES);
    PyObject *reference = references == NULL ? NULL : PyMapping_GetItemString(references, signature->name);
    PyObject *positional = NULL, *named = NULL, *result = NULL;
    if (reference == NULL || (positional = PyTuple_New(signature->required)) == NULL || (named = PyDict_New()) == NULL)
        goto done;
    for (int at = 0; signature->arguments[at] != NULL; at++) {
        if (at < signature->required) {
            Py_INCREF(bound[at]);
            if (PyTuple_SetItem(positional, at, bound[at]) < 0)
                goto done;
        } else if (bound[at] != NULL && PyDict_SetItemString(named, signature->arguments[at], bound[at]) < 0) {
            goto done;
        }
    }
    result = PyObject_Call(reference, positional, named);
done:
    Py_XDECREF(reference);
    Py_XDECREF(positional);
    Py_XDECREF(named);
    return result;
}

bool to_int64(PyObject *object, int64_t *number) {
    *number = PyLong_AsLongLong(object);
    return *number != -1 || !PyErr_Occurred();
}

int64_t *int64s_of(PyObject *numbers, Py_ssize_t *count) {
    bool is_list = PyList_Check(numbers);
    if (!is_list && !PyTuple_Check(numbers) && !PyRange_Check(numbers))
        return NULL;
    PyObject *each = is_list ? NULL : PySequence_Tuple(numbers);
    if (!is_list && each == NULL)
        return NULL;
    *count = is_list ? PyList_Size(numbers) : PyTuple_Size(each);
    int64_t *made = PyMem_Malloc(*count ? (size_t)*count * sizeof *made : 1);
    for (Py_ssize_t at = 0; made != NULL && at < *count; at++) { /* runs no code that could change the list */
        PyObject *number = is_list ? PyList_GetItem(numbers, at) : PyTuple_GetItem(each, at);
        if (!PyLong_Check(number) || !to_int64(number, &made[at])) {
            PyMem_Free(made);
            made = NULL;
        }
    }
    Py_XDECREF(each);
    return made;
}

bool open_region(Region *region, PyObject *buffer, PyObject *start, PyObject *end) {
    region->start = PyNumber_AsSsize_t(start, PyExc_OverflowError);
    if (region->start == -1 && PyErr_Occurred())
        return false;
    region->end = PyNumber_AsSsize_t(end, PyExc_OverflowError);
    if (region->end == -1 && PyErr_Occurred())
        return false;
    if (PyObject_GetBuffer(buffer, &region->view, PyBUF_SIMPLE) < 0)
        return false;
    if (region->start < 0 || region->end < 0 || region->end > region->view.len) {
        PyErr_Format(PyExc_ValueError, "bytes %zd to %zd are not those of a buffer of %zd", region->start, region->end,
                     region->view.len);
        PyBuffer_Release(&region->view);
        return false;
    }
    region->bytes = region->view.buf;
    return true;
}

void close_region(Region *region) { PyBuffer_Release(&region->view); }

bool put(PyObject *list, Py_ssize_t index, PyObject *item) {
    return item != NULL && PyList_SetItem(list, index, item) == 0;
}

bool append(PyObject *list, PyObject *item) {
    if (item == NULL)
        return false;
    int failed = PyList_Append(list, item);
    Py_DECREF(item);
    return !failed;
}

PyObject *number_array(PyObject *module, int kind, const int64_t *numbers, Py_ssize_t count) {
    PyObject *array = imported(module, ARRAY);
    return array == NULL ? NULL
                         : PyObject_CallFunction(array, "Cy#", kind, (const char *)numbers,
                                                 count * (Py_ssize_t)sizeof(int64_t));
}

PyObject *with_position(PyObject *first, Py_ssize_t position) {
    return first == NULL ? NULL : Py_BuildValue("(Nn)", first, position);
}

PyObject *slice_of(PyObject *view, Py_ssize_t start, Py_ssize_t stop) {
    PyObject *from = PyLong_FromSsize_t(start), *to = PyLong_FromSsize_t(stop), *slice = NULL, *part = NULL;
    if (from != NULL && to != NULL && (slice = PySlice_New(from, to, NULL)) != NULL)
        part = PyObject_GetItem(view, slice);
    Py_XDECREF(from);
    Py_XDECREF(to);
    Py_XDECREF(slice);
    return part;
}
