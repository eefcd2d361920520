"""The C API by ctypes, as a host program in another language would use it."""
import ctypes
import os

import numpy as np


class StepResult(ctypes.Structure):
    _fields_ = [("loss_sum", ctypes.c_double), ("loss_count", ctypes.c_double), ("window_loss_sum", ctypes.c_double),
                ("window_loss_count", ctypes.c_double), ("updated", ctypes.c_bool), ("has_grad_norm", ctypes.c_bool),
                ("grad_norm", ctypes.c_float), ("skipped", ctypes.c_bool), ("loss_scale", ctypes.c_float)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("rank", ctypes.c_size_t), ("shape", ctypes.POINTER(ctypes.c_int64))]


class Options(ctypes.Structure):
    _fields_ = [("threads", ctypes.c_int), ("level", ctypes.c_int), ("weights", ctypes.c_char_p), ("state_memory", ctypes.c_void_p),
                ("state_bytes", ctypes.c_uint64), ("step_memory", ctypes.c_void_p), ("step_bytes", ctypes.c_uint64),
                ("allocate", ctypes.c_void_p), ("release", ctypes.c_void_p), ("allocator_user", ctypes.c_void_p),
                ("log", ctypes.c_void_p), ("log_user", ctypes.c_void_p), ("accept_non_finite", ctypes.c_bool),
                ("host_state_memory", ctypes.c_void_p), ("host_state_bytes", ctypes.c_uint64),
                ("host_step_memory", ctypes.c_void_p), ("host_step_bytes", ctypes.c_uint64), ("variant", ctypes.c_uint32),
                ("comm", ctypes.c_void_p)]


def local_comms(ranks, timeout=0.0):
    """One handle per rank, for `Session`."""
    lib = ctypes.CDLL(os.environ["SLUICE_LIB"])
    lib.sluice_last_error.restype = ctypes.c_char_p
    comms = (ctypes.c_void_p * max(ranks, 1))()
    if lib.sluice_comm_local(ctypes.c_int(ranks), ctypes.c_double(timeout), comms):
        raise RuntimeError(lib.sluice_last_error().decode())
    return [ctypes.c_void_p(comm) for comm in comms]


def tcp_comm(where, rank, size, timeout=0.0):
    lib = ctypes.CDLL(os.environ["SLUICE_LIB"])
    lib.sluice_last_error.restype = ctypes.c_char_p
    comm = ctypes.c_void_p()
    if lib.sluice_comm_tcp(where.encode(), ctypes.c_int(rank), ctypes.c_int(size), ctypes.c_double(timeout), ctypes.byref(comm)):
        raise RuntimeError(lib.sluice_last_error().decode())
    return comm


def destroy_comm(comm):
    ctypes.CDLL(os.environ["SLUICE_LIB"]).sluice_comm_destroy(comm)


class Session:
    def __init__(self, plan_path, comm=None):
        self.lib = ctypes.CDLL(os.environ["SLUICE_LIB"])
        self.lib.sluice_last_error.restype = ctypes.c_char_p
        self.lib.sluice_session_error.restype = ctypes.c_char_p
        self.plan, self.session = ctypes.c_void_p(), ctypes.c_void_p()
        self._plain(self.lib.sluice_plan_open(str(plan_path).encode(), ctypes.byref(self.plan)))
        options = Options(comm=comm)
        self._plain(self.lib.sluice_session_create(self.plan, ctypes.byref(options), ctypes.byref(self.session)))

    def close(self):
        self.lib.sluice_session_destroy(self.session)
        self.lib.sluice_plan_close(self.plan)

    def _plain(self, status):
        if status:
            raise RuntimeError(self.lib.sluice_last_error().decode())

    def _check(self, status):
        if status:
            raise RuntimeError(self.lib.sluice_session_error(self.session).decode())

    def agree(self):
        self._check(self.lib.sluice_session_agree(self.session))

    def step(self, *arrays):
        """One micro-batch; arrays in the order of the program's inputs."""
        arrays = [np.ascontiguousarray(a) for a in arrays]
        pointers = (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])
        result = StepResult()
        self._check(self.lib.sluice_session_step(self.session, pointers, ctypes.c_size_t(len(arrays)),
                                                 ctypes.c_int64(len(arrays[0])), ctypes.byref(result)))
        return result

    def probe(self, *arrays):
        """Gradients of the arrays' samples, as outputs grad/NAME."""
        arrays = [np.ascontiguousarray(a) for a in arrays]
        pointers = (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])
        result = StepResult()
        self._check(self.lib.sluice_session_probe(self.session, pointers, ctypes.c_size_t(len(arrays)),
                                                  ctypes.c_int64(len(arrays[0])), ctypes.byref(result)))
        return result

    def infer(self, *arrays):
        """Arrays bring their shapes; outputs have what follows from them."""
        arrays = [np.ascontiguousarray(a) for a in arrays]
        shapes = [(ctypes.c_int64 * a.ndim)(*a.shape) for a in arrays]
        tensors = (Tensor * len(arrays))(*[Tensor(a.ctypes.data, a.ndim, s) for a, s in zip(arrays, shapes)])
        self._check(self.lib.sluice_session_infer_tensors(self.session, tensors, ctypes.c_size_t(len(arrays))))

    def output(self, name, dtype=np.float32):
        data, size, rank, shape = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), (ctypes.c_int64 * 16)()
        self._check(self.lib.sluice_session_output(self.session, name.encode(), ctypes.byref(data), ctypes.byref(size)))
        self._check(self.lib.sluice_session_output_shape(self.session, name.encode(), shape, ctypes.c_size_t(16),
                                                         ctypes.byref(rank)))
        return np.frombuffer(ctypes.string_at(data, size.value), dtype).reshape(shape[: rank.value])

    def flush(self):
        result = StepResult()
        self._check(self.lib.sluice_session_flush(self.session, ctypes.byref(result)))
        return result

    def read(self, name, shape, dtype=np.float32):
        out = np.empty(shape, dtype)
        self._check(self.lib.sluice_session_read_state(self.session, name.encode(), out.ctypes.data_as(ctypes.c_void_p),
                                                       ctypes.c_size_t(out.nbytes)))
        return out

    def read_parameter(self, name, shape):
        """As f32, in whatever form the plan stores it."""
        out = np.empty(shape, np.float32)
        self._check(self.lib.sluice_session_read_parameter(self.session, name.encode(), out.ctypes.data_as(ctypes.c_void_p),
                                                           ctypes.c_size_t(out.size)))
        return out

    def write_parameter(self, name, array):
        array = np.ascontiguousarray(array, np.float32)
        self._check(self.lib.sluice_session_write_parameter(self.session, name.encode(), array.ctypes.data_as(ctypes.c_void_p),
                                                            ctypes.c_size_t(array.size)))

    def save(self, folder):
        self._check(self.lib.sluice_session_save(self.session, str(folder).encode()))

    def load(self, folder):
        self._check(self.lib.sluice_session_load(self.session, str(folder).encode()))

    def set_hyper(self, group, name, value):
        """`group` is None for what stands outside groups."""
        self._check(self.lib.sluice_session_set_hyper(self.session, group and group.encode(), name.encode(),
                                                      ctypes.c_double(value)))

    def hyper(self, group, name):
        value = ctypes.c_double()
        self._check(self.lib.sluice_session_get_hyper(self.session, group and group.encode(), name.encode(),
                                                      ctypes.byref(value)))
        return value.value

    def freeze(self, group, frozen=True):
        call = self.lib.sluice_session_freeze if frozen else self.lib.sluice_session_unfreeze
        self._check(call(self.session, group.encode()))

    def write(self, name, array):
        array = np.ascontiguousarray(array)
        self._check(self.lib.sluice_session_write_state(self.session, name.encode(), array.ctypes.data_as(ctypes.c_void_p),
                                                        ctypes.c_size_t(array.nbytes)))
