// LSTM, GRU and RNN, unrolled over time: one product with the input weights for all
// steps, then a step of elementary operations per time.
#include "frontend/onnx/Elementwise.h"
#include "frontend/onnx/Limits.h"
#include "frontend/onnx/OpTable.h"

namespace sluice::frontend {

namespace {

struct Activation {
  std::string name;
  double alpha, beta;
};

/// Name and default parameters of the functions the recurrent operators may use.
std::optional<Activation> activationOf(llvm::StringRef name) {
  std::string lower = name.lower();
  const Activation known[] = {{"relu", 0, 0},         {"tanh", 0, 0},
                              {"sigmoid", 0, 0},      {"affine", 1, 0},
                              {"leakyrelu", 0.01, 0}, {"thresholdedrelu", 1, 0},
                              {"scaledtanh", 1, 1},   {"hardsigmoid", 0.2, 0.5},
                              {"elu", 1, 0},          {"softsign", 0, 0},
                              {"softplus", 0, 0}};
  for (const Activation &activation : known)
    if (activation.name == lower)
      return activation;
  return std::nullopt;
}

Value activate(Emitter &e, const Activation &f, Value x) {
  if (f.name == "affine")
    return e.add(e.mul(x, f.alpha), f.beta);
  if (f.name == "leakyrelu")
    return positiveOr(e, x, e.mul(x, f.alpha));
  if (f.name == "thresholdedrelu")
    return e.select(e.cmp(x, f.alpha, "gt"), x, e.like(x, 0));
  if (f.name == "scaledtanh")
    return e.mul(e.un("tanh", e.mul(x, f.beta)), f.alpha);
  if (f.name == "hardsigmoid")
    return clamp(e, e.add(e.mul(x, f.alpha), f.beta), 0, 1);
  if (f.name == "elu")
    return positiveOr(e, x, e.mul(e.add(e.un("exp", negativePart(e, x)), -1), f.alpha));
  if (f.name == "softsign")
    return e.div(x, e.add(e.un("abs", x), 1));
  return e.un(f.name, x);
}

/// What the three operators share; X is [time, batch, input].
struct Recurrence {
  Value x, w, r, b, lengths, h, c, p;
  int64_t time, batch, hidden, directions;
  bool reverse, batchFirst;
  double clip;
  std::vector<Activation> functions; // of all directions
};

/// State of one direction: one step in, one step out.
struct State {
  Value h, c;
};

std::optional<Recurrence> readRecurrence(Node &n, int64_t gates, bool cell,
                                         llvm::ArrayRef<llvm::StringRef> defaults) {
  auto bad = [&](const llvm::Twine &text) {
    n.e.fail(text);
    return std::nullopt;
  };
  auto optional = [&](int i) { return n.has(i) ? n.in(i) : Value(); };
  Recurrence q{n.in(0),
               n.in(1),
               n.in(2),
               optional(3),
               optional(4),
               optional(5),
               cell ? optional(6) : Value(),
               cell ? optional(7) : Value(),
               0,
               0,
               0,
               0,
               false,
               false,
               n.f("clip", 0),
               {}};
  if (!q.x || !q.w || !q.r || !n.e.error().empty())
    return std::nullopt;
  if (rankOf(q.x) != 3 || rankOf(q.w) != 3 || rankOf(q.r) != 3)
    return bad("operands need rank 3");
  q.batchFirst = n.i("layout", 0);
  if (q.batchFirst) {
    q.x = n.e.transpose(q.x, {1, 0, 2});
    for (Value *state : {&q.h, &q.c})
      if (*state)
        *state = n.e.transpose(*state, {1, 0, 2});
  }
  q.time = dimOf(q.x, 0), q.batch = dimOf(q.x, 1);
  q.directions = dimOf(q.w, 0), q.hidden = dimOf(q.r, 2);
  std::string direction = n.s("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return bad("direction '" + direction + "' is unknown");
  q.reverse = direction == "reverse";
  int64_t d = direction == "bidirectional" ? 2 : 1;
  auto shaped = [](Value v, llvm::ArrayRef<int64_t> shape) {
    return !v || shapeOf(v) == shape;
  };
  if (!shaped(q.w, {d, gates * q.hidden, dimOf(q.x, 2)}) ||
      !shaped(q.r, {d, gates * q.hidden, q.hidden}) ||
      !shaped(q.b, {d, 2 * gates * q.hidden}) || !shaped(q.lengths, {q.batch}) ||
      !shaped(q.h, {d, q.batch, q.hidden}) || !shaped(q.c, {d, q.batch, q.hidden}) ||
      !shaped(q.p, {d, 3 * q.hidden}))
    return bad("operands have shapes that do not fit each other");
  if (q.time > maxTripCount)
    return bad("is unrolled, and " + llvm::Twine(q.time) + " steps pass the limit of " +
               llvm::Twine(maxTripCount));
  std::vector<std::string> names;
  if (auto *given = n.attribute("activations"))
    names.assign(given->strings().begin(), given->strings().end());
  auto alphas = n.fs("activation_alpha"), betas = n.fs("activation_beta");
  for (size_t i = 0; i < defaults.size() * d; ++i) {
    auto f = activationOf(i < names.size() ? llvm::StringRef(names[i])
                                           : defaults[i % defaults.size()]);
    if (!f)
      return bad("activation '" + names[i] + "' is unknown");
    if (i < alphas.size())
      f->alpha = alphas[i];
    if (i < betas.size())
      f->beta = betas[i];
    q.functions.push_back(*f);
  }
  return q;
}

/// The pieces of one direction.
struct Direction {
  Emitter &e;
  const Recurrence &q;
  int64_t d;
  Value r, inputs, recurrentBias, peephole; // inputs: [time, batch, gates * hidden]

  Value of(Value v) const { return v ? e.squeeze(e.sliceAxis(v, 0, d, 1), 0) : v; }
  const Activation &f(size_t i) const {
    return q.functions[d * q.functions.size() / q.directions + i];
  }
  Value gate(Value v, int64_t k) const {
    return v ? e.sliceAxis(v, rankOf(v) - 1, k * q.hidden, q.hidden) : v;
  }
  Value clipped(Value v) const { return q.clip > 0 ? clamp(e, v, -q.clip, q.clip) : v; }
  Value run(size_t i, Value v) const { return activate(e, f(i), clipped(v)); }
  Value recur(Value h, Value weights) const {
    return e.contract(h, weights, {}, {}, {1}, {1});
  }
};

Direction prepare(Emitter &e, const Recurrence &q, int64_t d, int64_t gates,
                  bool joinBias) {
  Direction out{e, q, d, {}, {}, {}, {}};
  out.r = out.of(q.r);
  out.peephole = out.of(q.p);
  out.inputs = e.contract(q.x, out.of(q.w), {}, {}, {2}, {1});
  if (Value b = out.of(q.b)) {
    int64_t size = gates * q.hidden;
    Value first = e.sliceAxis(b, 0, 0, size);
    out.recurrentBias = e.sliceAxis(b, 0, size, size);
    out.inputs = e.add(out.inputs, joinBias ? e.add(first, out.recurrentBias) : first);
  }
  return out;
}

State lstmStep(const Direction &d, Value x, State s, bool couple) {
  Emitter &e = d.e;
  Value g = e.add(x, d.recur(s.h, d.r)); // gates i, o, f, c
  auto peep = [&](Value v, int64_t k, Value c) {
    return d.peephole ? e.add(v, e.mul(d.gate(d.peephole, k), c)) : v;
  };
  Value i = d.run(0, peep(d.gate(g, 0), 0, s.c));
  Value f = couple ? e.sub(1, i) : d.run(0, peep(d.gate(g, 2), 2, s.c));
  Value c = e.add(e.mul(f, s.c), e.mul(i, d.run(1, d.gate(g, 3))));
  Value o = d.run(0, peep(d.gate(g, 1), 1, c));
  return {e.mul(o, activate(e, d.f(2), c)), c};
}

State gruStep(const Direction &d, Value x, State s, bool linearBeforeReset) {
  Emitter &e = d.e;
  int64_t h = d.q.hidden; // gates z, r, h
  Value zr =
      e.add(e.sliceAxis(x, 1, 0, 2 * h), d.recur(s.h, e.sliceAxis(d.r, 0, 0, 2 * h)));
  if (d.recurrentBias)
    zr = e.add(zr, e.sliceAxis(d.recurrentBias, 0, 0, 2 * h));
  Value z = d.run(0, d.gate(zr, 0)), r = d.run(0, d.gate(zr, 1));
  Value weights = e.sliceAxis(d.r, 0, 2 * h, h), bias = d.gate(d.recurrentBias, 2);
  Value inner = d.recur(linearBeforeReset ? s.h : e.mul(r, s.h), weights);
  if (bias)
    inner = e.add(inner, bias);
  if (linearBeforeReset)
    inner = e.mul(r, inner);
  Value candidate = d.run(1, e.add(d.gate(x, 2), inner));
  return {e.add(e.mul(e.sub(1, z), candidate), e.mul(z, s.h)), {}};
}

State rnnStep(const Direction &d, Value x, State s) {
  return {d.run(0, d.e.add(x, d.recur(s.h, d.r))), {}};
}

using Step = llvm::function_ref<State(const Direction &, Value, State)>;

/// All steps of one direction; steps past a sequence's length keep the state and give 0.
State unroll(const Direction &d, State s, Step step, std::vector<Value> &rows) {
  Emitter &e = d.e;
  const Recurrence &q = d.q;
  bool backward = q.reverse || d.d == 1;
  for (int64_t i = 0; i < q.time; ++i) {
    int64_t t = backward ? q.time - 1 - i : i;
    State next = step(d, e.squeeze(e.sliceAxis(d.inputs, 0, t, 1), 0), s);
    Value row = next.h;
    if (!row)
      return {};
    if (q.lengths) {
      Value valid = e.along(e.cmp(q.lengths, double(t), "gt"), shapeOf(row), 0);
      row = e.select(valid, next.h, e.like(next.h, 0));
      next.h = e.select(valid, next.h, s.h);
      next.c = next.c ? e.select(valid, next.c, s.c) : next.c;
    }
    rows[t] = row;
    s = next;
  }
  return s;
}

LogicalResult importRecurrent(Node &n, int64_t gates, bool cell, bool joinBias,
                              llvm::ArrayRef<llvm::StringRef> defaults, Step step) {
  Emitter &e = n.e;
  auto q = readRecurrence(n, gates, cell, defaults);
  if (!q)
    return failure();
  llvm::SmallVector<Value> y, h, c;
  for (int64_t d = 0; d < q->directions; ++d) {
    Direction direction = prepare(e, *q, d, gates, joinBias);
    Value zero = e.splat({q->batch, q->hidden}, elementOf(q->x), 0);
    State state{q->h ? direction.of(q->h) : zero, q->c ? direction.of(q->c) : zero};
    std::vector<Value> rows(q->time);
    state = unroll(direction, state, step, rows);
    if (!state.h)
      return failure();
    if (n.wants(0)) { // [time, 1, batch, hidden]
      llvm::SmallVector<Value> parts;
      for (Value row : rows)
        parts.push_back(e.reshape(row, {1, 1, q->batch, q->hidden}));
      y.push_back(e.concat(parts, 0));
    }
    h.push_back(e.unsqueeze(state.h, 0));
    c.push_back(cell ? e.unsqueeze(state.c, 0) : Value());
  }
  auto deliver = [&](int i, llvm::ArrayRef<Value> parts, int64_t axis, Ints order) {
    Value joined = e.concat(parts, axis);
    return n.out(i, q->batchFirst && joined ? e.transpose(joined, order) : joined);
  };
  if (n.wants(0) && failed(deliver(0, y, 1, {2, 0, 1, 3})))
    return failure();
  if (n.wants(1) && failed(deliver(1, h, 0, {1, 0, 2})))
    return failure();
  return cell && n.wants(2) ? deliver(2, c, 0, {1, 0, 2}) : success();
}

LogicalResult importLstm(Node &n) {
  bool couple = n.i("input_forget", 0);
  return importRecurrent(
      n, 4, true, true, {"sigmoid", "tanh", "tanh"},
      [&](const Direction &d, Value x, State s) { return lstmStep(d, x, s, couple); });
}
LogicalResult importGru(Node &n) {
  bool linear = n.i("linear_before_reset", 0);
  return importRecurrent(
      n, 3, false, false, {"sigmoid", "tanh"},
      [&](const Direction &d, Value x, State s) { return gruStep(d, x, s, linear); });
}
LogicalResult importRnn(Node &n) {
  return importRecurrent(n, 1, false, true, {"tanh"}, rnnStep);
}

} // namespace

void addRnn(OpTable &table) {
  table["LSTM"] = importLstm;
  table["GRU"] = importGru;
  table["RNN"] = importRnn;
}

} // namespace sluice::frontend
