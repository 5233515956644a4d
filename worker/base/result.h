// SPDX-License-Identifier: Apache-2.0
// Result<T> holds a value, or an error that came from outside the program. Only expected failures
// are errors: a broken invariant is WEIR_CHECK (check.h). g++ 12 has no std::expected.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace weir {

enum class Code : unsigned char {
  kCancelled,    // our own stop request
  kTimeout,      // a deadline or an idle limit passed; whether the request took effect is unknown
  kUnavailable,  // the peer refused, closed or is unreachable; retry after back-off
  kUnauthorized,
  kForbidden,
  kNotFound,
  kConflict,
  kGone,
  kThrottled,  // the codes from kUnauthorized on: HTTP 401 403 404 409 410 429
  kInvalid,    // the input is wrong; a retry cannot help
  kInternal,
  kModel,  // code of a model that somebody else has written failed
};

struct Error {
  Code code;
  std::string message;  // one line without a full stop; names the field, file:line or peer

  Error with(const std::string& context) const { return {code, context + ": " + message}; }
};

inline Error invalid(std::string message) {
  return {Code::kInvalid, std::move(message)};
}
inline Error invalid(const std::string& where, const std::string& what) {
  return {Code::kInvalid, where + ": " + what};
}

template <class T, class E = Error>
class [[nodiscard]] Result {
 public:
  // Implicit, so that functions can `return value;` and `return Error{...};`.
  // NOLINTBEGIN(google-explicit-constructor)
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(E error) : state_(std::in_place_index<1>, std::move(error)) {}
  // NOLINTEND(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& operator*() & { return value(); }
  const T& operator*() const& {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &**this; }
  const E& error() const {
    assert(!ok());
    return *std::get_if<1>(&state_);
  }

 private:
  T& value() {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  std::variant<T, E> state_;
};

struct Unit {};
using Status = Result<Unit>;

}  // namespace weir

// WEIR_TRY(auto pods, list_pods()) declares pods, or returns the error from the calling function.
// The macro is two statements, so it must not be the body of an `if` without braces.
#define WEIR_CONCAT_(a, b) a##b
#define WEIR_CONCAT(a, b) WEIR_CONCAT_(a, b)
#define WEIR_TRY(declaration, expression) \
  WEIR_TRY_(declaration, expression, WEIR_CONCAT(weir_try_, __COUNTER__))
#define WEIR_TRY_(declaration, expression, name) \
  auto name = (expression);                      \
  if (!name) return name.error();                \
  declaration = *std::move(name)
// WEIR_OK(step()) returns the error of a Status from the calling function.
#define WEIR_OK(expression)                                            \
  do {                                                                 \
    if (auto weir_ok = (expression); !weir_ok) return weir_ok.error(); \
  } while (false)
