#pragma once
// A layer of attention as exporters write it, in many forms.

#include <string>
#include <vector>

namespace sluice::models {

struct AttentionLayer {
  int64_t batch = 8, length = 40, heads = 4, kvHeads = 4, size = 8;
  enum class Scale { Product, Division, Query, Both } scale = Scale::Product;
  enum class Mask {
    None,
    Where,    ///< a constant triangle decides between scores and -inf
    Triangle, ///< a constant triangle of 0 and -3.4e38 is added
    Keys,     ///< of the input, added: 0 or `fill`
    WhereKeys ///< both Where and Keys
  } mask = Mask::None;
  double fill = -3.4028234663852886e38;
  double ratio = 0;
  bool isRead = false; ///< probabilities are a result too, so that nothing is fused
};

/// x [batch, length, heads * size] -> joint projection -> attention -> logits
/// [batch, length, 5].
class AttentionText {
public:
  explicit AttentionText(const AttentionLayer &layer) : a(layer) {}

  std::string text() {
    int64_t width = a.heads * a.size, kvWidth = a.kvHeads * a.size;
    std::string x = tensor({a.batch, a.length, width});
    all = width + 2 * kvWidth;
    std::string joint = tensor({all, width}), head = tensor({5, width});
    line("%w = graph.read @\"param/qkv\" : " + joint);
    line("%u = graph.read @\"param/head\" : " + head);
    line("%a = " + product("%x", "%w", "", "", "2", "1", x, joint,
                           tensor({a.batch, a.length, all})));
    std::string q = heads("q", 0, a.heads), k = heads("k", width, a.kvHeads),
                v = heads("v", width + kvWidth, a.kvHeads);
    k = repeated("k", k), v = repeated("v", v);
    std::string y = attended(q, k, v);
    std::string back = tensor({a.batch, a.length, a.heads, a.size});
    line("%yt = graph.transpose " + y + " {permutation = array<i64: 0, 2, 1, 3>} : (" +
         rows() + ") -> " + back);
    line("%yr = graph.reshape %yt {shape = array<i64: " +
         list({a.batch, a.length, width}) + ">} : (" + back + ") -> " + x);
    std::string logits = tensor({a.batch, a.length, 5});
    line("%logits = " + product("%yr", "%u", "", "", "2", "1", x, head, logits));
    std::string more = a.isRead ? ", %p" : "", moreType = a.isRead ? ", " + scores() : "";
    std::string declared =
        a.isRead ? ", " + scores() + " {graph.name = \"p\"}" : std::string();
    line("return %logits" + more + " : " + logits + moreType);
    std::string inputs = "%x: " + x + " {graph.name = \"x\"}";
    if (hasKeys())
      inputs += ", %m: " + keyMask() + " {graph.name = \"m\"}";
    return "graph.parameter @\"param/qkv\" : " + joint + " \"parameter\"\n" +
           "graph.parameter @\"param/head\" : " + head + " \"parameter\"\n" + controls() +
           "func.func @forward(" + inputs + ") -> (" + logits +
           " {graph.name = \"logits\"}" + declared + ") {\n" + body + "}\n";
  }

private:
  static std::string list(const std::vector<int64_t> &values) {
    std::string text;
    for (int64_t value : values)
      text += (text.empty() ? "" : ", ") + std::to_string(value);
    return text;
  }
  static std::string tensor(const std::vector<int64_t> &shape,
                            const std::string &element = "f32") {
    std::string text = "tensor<";
    for (int64_t size : shape)
      text += std::to_string(size) + "x";
    return text + element + ">";
  }
  std::string rows() const { return tensor({a.batch, a.heads, a.length, a.size}); }
  std::string scores(const std::string &element = "f32") const {
    return tensor({a.batch, a.heads, a.length, a.length}, element);
  }
  std::string keyMask() const { return tensor({a.batch, 1, 1, a.length}); }
  bool hasKeys() const {
    return a.mask == AttentionLayer::Mask::Keys ||
           a.mask == AttentionLayer::Mask::WhereKeys;
  }
  void line(const std::string &text) { body += "  " + text + "\n"; }

  static std::string product(const std::string &lhs, const std::string &rhs,
                             const std::string &lhsBatch, const std::string &rhsBatch,
                             const std::string &lhsSum, const std::string &rhsSum,
                             const std::string &left, const std::string &right,
                             const std::string &result) {
    auto dims = [](const std::string &d) {
      return d.empty() ? std::string("array<i64>") : "array<i64: " + d + ">";
    };
    return "graph.contract " + lhs + ", " + rhs + " {lhs_batch = " + dims(lhsBatch) +
           ", rhs_batch = " + dims(rhsBatch) + ", lhs_contract = " + dims(lhsSum) +
           ", rhs_contract = " + dims(rhsSum) + "} : (" + left + ", " + right + ") -> " +
           result;
  }

  std::string heads(const std::string &name, int64_t start, int64_t count) {
    std::string part = tensor({a.batch, a.length, count * a.size}),
                split = tensor({a.batch, a.length, count, a.size}),
                turned = tensor({a.batch, count, a.length, a.size});
    line("%" + name + "s = graph.slice %a {starts = array<i64: 0, 0, " +
         std::to_string(start) +
         ">, sizes = array<i64: " + list({a.batch, a.length, count * a.size}) +
         ">, steps = array<i64: 1, 1, 1>} : (" + tensor({a.batch, a.length, all}) +
         ") -> " + part);
    line("%" + name + "r = graph.reshape %" + name + "s {shape = array<i64: " +
         list({a.batch, a.length, count, a.size}) + ">} : (" + part + ") -> " + split);
    line("%" + name + "t = graph.transpose %" + name +
         "r {permutation = array<i64: 0, 2, 1, 3>} : (" + split + ") -> " + turned);
    return "%" + name + "t";
  }

  std::string repeated(const std::string &name, const std::string &value) {
    if (a.heads == a.kvHeads)
      return value;
    std::vector<int64_t> apart{a.batch, a.kvHeads, 1, a.length, a.size}, wide = apart;
    wide[2] = a.heads / a.kvHeads;
    line("%" + name + "1 = graph.reshape " + value +
         " {shape = array<i64: " + list(apart) + ">} : (" +
         tensor({a.batch, a.kvHeads, a.length, a.size}) + ") -> " + tensor(apart));
    line("%" + name + "2 = graph.broadcast %" + name + "1 {shape = array<i64: " +
         list(wide) + ">} : (" + tensor(apart) + ") -> " + tensor(wide));
    line("%" + name + "3 = graph.reshape %" + name +
         "2 {shape = array<i64: " + list({a.batch, a.heads, a.length, a.size}) +
         ">} : (" + tensor(wide) + ") -> " + rows());
    return "%" + name + "3";
  }

  std::string scaled(const std::string &value, const std::string &type,
                     const std::string &name, const std::string &op, double factor) {
    line("%" + name + "c = graph.constant dense<" + number(factor) + "> : " + type);
    line("%" + name + "m = graph." + op + " " + value + ", %" + name + "c : (" + type +
         ", " + type + ") -> " + type);
    return "%" + name + "m";
  }
  static std::string number(double x) {
    char text[40];
    std::snprintf(text, sizeof text, "%.9e", x);
    return text;
  }

  std::string attended(std::string q, std::string k, const std::string &v) {
    using Scale = AttentionLayer::Scale;
    if (a.scale == Scale::Query)
      q = scaled(q, rows(), "qc", "mul", 0.25);
    if (a.scale == Scale::Both)
      q = scaled(q, rows(), "qc", "mul", 0.5), k = scaled(k, rows(), "kc", "mul", 0.5);
    std::string turned = tensor({a.batch, a.heads, a.size, a.length});
    line("%kx = graph.transpose " + k + " {permutation = array<i64: 0, 1, 3, 2>} : (" +
         rows() + ") -> " + turned);
    line("%s = " + product(q, "%kx", "0, 1", "0, 1", "3", "2", rows(), turned, scores()));
    std::string s = "%s";
    if (a.scale == Scale::Product)
      s = scaled(s, scores(), "sc", "mul", 0.25);
    if (a.scale == Scale::Division)
      s = scaled(s, scores(), "sc", "div", 4);
    s = masked(s);
    line("%p = graph.softmax " + s + " {axis = 3 : i64} : (" + scores() + ") -> " +
         scores());
    std::string p = "%p";
    if (a.ratio > 0) {
      line("%seed = graph.read @\"control/seed\" : tensor<i64>");
      line("%update = graph.read @\"control/update\" : tensor<i64>");
      line("%sample = graph.read @\"control/sample\" : tensor<i64>");
      line("%d, %k0 = graph.dropout %p, %seed, %update, %sample {ratio = " +
           number(a.ratio) + " : f64, id = 3 : i64} : (" + scores() +
           ", tensor<i64>, tensor<i64>, tensor<i64>) -> (" + scores() + ", " +
           scores("i1") + ")");
      p = "%d";
    }
    line("%y = " + product(p, v, "0, 1", "0, 1", "3", "2", scores(), rows(), rows()));
    return "%y";
  }

  std::string triangle(const std::string &hidden, const std::string &seen) const {
    std::string text = "[";
    for (int64_t i = 0; i < a.length; ++i) {
      text += i ? ", [" : "[";
      for (int64_t j = 0; j < a.length; ++j)
        text += (j ? ", " : "") + (j > i ? hidden : seen);
      text += "]";
    }
    return text + "]";
  }

  std::string masked(std::string s) {
    using Mask = AttentionLayer::Mask;
    std::string square = tensor({a.length, a.length}),
                bits = tensor({a.length, a.length}, "i1"),
                full = "{shape = array<i64: " +
                       list({a.batch, a.heads, a.length, a.length}) + ">}";
    if (hasKeys()) {
      line("%mb = graph.broadcast %m " + full + " : (" + keyMask() + ") -> " + scores());
      line("%sm = graph.add " + s + ", %mb : (" + scores() + ", " + scores() + ") -> " +
           scores());
      s = "%sm";
    }
    if (a.mask == Mask::Where || a.mask == Mask::WhereKeys) {
      line("%h = graph.constant dense<" + triangle("true", "false") + "> : " + bits);
      line("%hb = graph.broadcast %h " + full + " : (" + bits + ") -> " + scores("i1"));
      line("%f = graph.constant dense<0xFF800000> : " + scores());
      line("%sw = graph.select %hb, %f, " + s + " : (" + scores("i1") + ", " + scores() +
           ", " + scores() + ") -> " + scores());
      s = "%sw";
    }
    if (a.mask == Mask::Triangle) {
      line("%t = graph.constant dense<" + triangle(number(a.fill), "0.0") +
           "> : " + square);
      line("%tb = graph.broadcast %t " + full + " : (" + square + ") -> " + scores());
      line("%st = graph.add %tb, " + s + " : (" + scores() + ", " + scores() + ") -> " +
           scores());
      s = "%st";
    }
    return s;
  }

  std::string controls() const {
    if (a.ratio == 0)
      return "";
    std::string text;
    for (const char *name : {"seed", "update", "sample"})
      text += std::string("graph.parameter @\"control/") + name +
              "\" : tensor<i64> \"control\"\n";
    return text;
  }

  const AttentionLayer &a;
  std::string body;
  int64_t all = 0;
};

inline std::string attentionLayer(const AttentionLayer &layer) {
  return AttentionText(layer).text();
}

} // namespace sluice::models
