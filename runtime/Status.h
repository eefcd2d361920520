#pragma once
// How the plain side reports: a code that is also the process exit code, and a message
// that says what, where and what to do. No exceptions cross a folder.

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace sluice {

/// The values are the exit codes of the command line and the status codes of the C API.
enum class StatusCode : int {
  ok = 0,
  refused = 1,       // the input or the request is wrong
  usage = 2,         // the caller misused the interface
  doesNotFit = 3,    // memory
  cannotRunHere = 4, // this machine lacks something
  damaged = 5,       // a file or its data is not what it says it is
  failed = 6,        // a rank or device failed
};

struct [[nodiscard]] Status {
  StatusCode code = StatusCode::ok;
  std::string message;

  bool ok() const { return code == StatusCode::ok; }

  static Status success() { return {}; }
  static Status refused(std::string text) {
    return {StatusCode::refused, std::move(text)};
  }
  static Status usage(std::string text) { return {StatusCode::usage, std::move(text)}; }
  static Status doesNotFit(std::string text) {
    return {StatusCode::doesNotFit, std::move(text)};
  }
  static Status cannotRunHere(std::string text) {
    return {StatusCode::cannotRunHere, std::move(text)};
  }
  static Status damaged(std::string text) {
    return {StatusCode::damaged, std::move(text)};
  }
  static Status failed(std::string text) { return {StatusCode::failed, std::move(text)}; }
};

/// A value, or the status that says why there is none.
template <class T> class [[nodiscard]] Result {
public:
  Result(T value) : content(std::move(value)) {}
  Result(Status status) : content(std::move(status)) {
    assert(!std::get<Status>(content).ok() && "a result without a value needs a reason");
  }

  bool ok() const { return std::holds_alternative<T>(content); }
  explicit operator bool() const { return ok(); }

  T &operator*() { return std::get<T>(content); }
  const T &operator*() const { return std::get<T>(content); }
  T *operator->() { return &std::get<T>(content); }
  const T *operator->() const { return &std::get<T>(content); }

  /// Only when !ok().
  const Status &status() const { return std::get<Status>(content); }

private:
  std::variant<T, Status> content;
};

} // namespace sluice
