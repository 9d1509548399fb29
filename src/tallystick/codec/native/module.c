/* The module: twins of functions of tallystick.codec, with their signatures and results. Those say what each does;
   the names and the layouts of the bytes are theirs. */

#include "codec.h"

#define INTERFACE 1 /* of tallystick.codec.implementation: another one is not used */

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL | METH_KEYWORDS, NULL}

static PyMethodDef FUNCTIONS[] = {
    FUNCTION(scan_adds),
    FUNCTION(scan_uniform_adds),
    FUNCTION(ack_adds),
    FUNCTION(scan_acks),
    FUNCTION(encode_adds),
    FUNCTION(scan_read_requests),
    FUNCTION(encode_reads),
    FUNCTION(scan_reads),
    FUNCTION(response_entries),
    FUNCTION(open_entries),
    FUNCTION(open_singles),
    FUNCTION(open_together),
    FUNCTION(crc32c_of_spans),
    FUNCTION(crc32_of_spans),
    FUNCTION(joined_spans),
    FUNCTION(position_texts),
    FUNCTION(scan_messages),
    FUNCTION(scan_members),
    FUNCTION(scan_records),
    FUNCTION(scan_uniform_records),
    FUNCTION(encode_records),
    FUNCTION(crc32_ways),
    FUNCTION(scan_pulled),
    FUNCTION(hash_client_ids),
    FUNCTION(scan_alike),
    FUNCTION(usual_properties),
    FUNCTION(encode_head),
    FUNCTION(split_uniform_batch),
    FUNCTION(scan_requests),
    FUNCTION(encode_units),
    FUNCTION(add_index_entries),
    FUNCTION(runs_of_units),
    FUNCTION(scan_v3_adds),
    FUNCTION(ack_v3_adds),
    FUNCTION(scan_v3_acks),
    FUNCTION(encode_v3_adds),
    FUNCTION(scan_v3_read_requests),
    FUNCTION(encode_v3_reads),
    FUNCTION(scan_v3_reads),
    FUNCTION(encode_v3_read_responses),
    FUNCTION(responses_of_runs),
    FUNCTION(page_pieces),
    FUNCTION(cut_chunks),
    FUNCTION(count_good_chunks),
    FUNCTION(dense_locations),
    FUNCTION(picked_responses),
    FUNCTION(crc32c_of_parts),
    FUNCTION(copy_parts),
    FUNCTION(crc32c_digest),
    FUNCTION(crc32c_digests),
    FUNCTION(crc32c_table),
    {NULL, NULL, 0, NULL},
};

State *state_of(PyObject *module) { return PyModule_GetState(module); }

static int start(PyObject *module) {
    State *state = state_of(module);
    choose_crc32();
    if (PyModule_AddStringConstant(module, "CRC32C", choose_crc32c()) < 0 ||
        PyModule_AddIntMacro(module, INTERFACE) < 0 ||
        (state->crc32c_digest = PyObject_GetAttrString(module, "crc32c_digest")) == NULL ||
        (state->crc32c_digests = PyObject_GetAttrString(module, "crc32c_digests")) == NULL)
        return -1;
    return 0;
}

static int visit_state(PyObject *module, visitproc visit, void *arg) {
    State *state = state_of(module);
    for (int at = 0; at < IMPORTED_COUNT; at++)
        Py_VISIT(state->imported[at]);
    Py_VISIT(state->crc32c_digest);
    Py_VISIT(state->crc32c_digests);
    return 0;
}

static int clear_state(PyObject *module) {
    State *state = state_of(module);
    for (int at = 0; at < IMPORTED_COUNT; at++)
        Py_CLEAR(state->imported[at]);
    Py_CLEAR(state->crc32c_digest);
    Py_CLEAR(state->crc32c_digests);
    return 0;
}

static PyModuleDef_Slot SLOTS[] = {{Py_mod_exec, (void *)start}, {0, NULL}};

static PyModuleDef DEFINITION = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tallystick.codec._compiled",
    .m_doc = "Functions of tallystick.codec, compiled.",
    .m_size = sizeof(State),
    .m_methods = FUNCTIONS,
    .m_slots = SLOTS,
    .m_traverse = visit_state,
    .m_clear = clear_state,
};

PyMODINIT_FUNC PyInit__compiled(void) { return PyModuleDef_Init(&DEFINITION); }
