// SPDX-License-Identifier: Apache-2.0
// Reads and writes the fields of structs as JSON. Each struct lists its fields once, in a template
//   void fields(auto& io, Is<Member> auto& member)
// that works with a Reader and with a Writer. Internal to this room; only json_io.cpp includes
// json.hpp.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "worker/base/result.h"

namespace weir::protocol {

template <class T, class Struct>
concept Is = std::same_as<std::remove_const_t<T>, Struct>;

template <class E, std::size_t N>
using Names = std::array<std::pair<E, const char*>, N>;

// A parsed JSON object with a nesting of at most 32. parse returns kInvalid for anything else.
class Document {
 public:
  static Result<Document> parse(std::string_view text);
  const nlohmann::json& root() const { return *root_; }

 private:
  explicit Document(std::shared_ptr<const nlohmann::json> root) : root_(std::move(root)) {}
  std::shared_ptr<const nlohmann::json> root_;
};

// Reads the fields of one object. A missing field leaves its value unchanged. The first wrong field
// becomes the error, as "members[2].workerIndex: ...", and later calls do nothing.
class Reader {
 public:
  explicit Reader(const nlohmann::json& object) : Reader(object, "", nullptr) {}

  void operator()(const char* name, bool& value);
  void operator()(const char* name, int& value);
  void operator()(const char* name, std::int64_t& value);
  void operator()(const char* name, std::uint32_t& value);
  void operator()(const char* name, double& value);  // null: NaN
  void operator()(const char* name, std::string& value);
  template <class T>
  void operator()(const char* name, T& value) {  // a struct with fields()
    if (!is_object(name)) return;
    Reader inner = child(name);
    fields(inner, value);
  }
  template <class T>
  void operator()(const char* name, std::optional<T>& value) {
    if (has(name)) (*this)(name, value.emplace());
  }
  template <class T>
  void operator()(const char* name, std::vector<T>& value) {
    const std::size_t count = list_size(name);
    value.assign(count, T{});
    for (std::size_t i = 0; i < count && ok(); ++i) {
      Reader items = list(name);
      items.element(i, value[i]);
    }
  }
  template <class T>
  void operator()(const char* name, std::map<std::string, T>& value) {
    if (!is_object(name)) return;
    Reader inner = child(name);
    for (const std::string& key : inner.keys()) inner(key.c_str(), value[key]);
  }
  template <class T>
  void required(const char* name, T& value) {
    needs(name);
    (*this)(name, value);
  }
  void needs(const char* name) {
    if (!state_->accepts_missing && ok() && !has(name)) fail(name, "missing");
  }
  void accept_missing() { state_->accepts_missing = true; }
  // names: pairs of a value and its name.
  template <class E>
  void choice(const char* name, E& value, const auto& names) {
    if (!has(name)) return;
    std::string text, all;
    (*this)(name, text);
    for (const auto& [candidate, label] : names) {
      if (text == label) {
        value = candidate;
        return;
      }
      all += (all.empty() ? "" : ", ") + std::string(label);
    }
    fail(name, "\"" + text + "\" is none of " + all);
  }
  // Reads a nested document of any form as text.
  void document(const char* name, std::string& text);

  bool has(const char* name) const;
  bool ok() const { return !state_->error; }
  void fail(const char* name, const std::string& why);
  std::optional<Error> error() const { return state_->error; }
  static constexpr bool kReads = true;

 private:
  struct State {
    std::optional<Error> error;
    bool accepts_missing = false;
  };
  Reader(const nlohmann::json& value, std::string path, std::shared_ptr<State> state);
  Reader child(const char* name) const;
  Reader list(const char* name) const { return child(name); }
  bool is_object(const char* name);
  std::size_t list_size(const char* name);  // 0 if the field is absent or not a list
  std::vector<std::string> keys() const;
  const nlohmann::json* find(const char* name) const;
  void integer(const char* name, std::int64_t least, std::int64_t most, std::int64_t& value);

  // For a list: reads element i, a value or a struct, under the path "name[i]".
  template <class T>
  void element(std::size_t i, T& value) {
    Reader wrapped = at(i);
    if constexpr (requires { fields(wrapped, value); }) {
      if (wrapped.check_object()) fields(wrapped, value);
    } else {
      wrapped.self(value);
    }
  }
  Reader at(std::size_t i) const;
  bool check_object();
  void self(int& value);
  void self(double& value);
  void self(std::string& value);
  void self(std::array<std::string, 2>& pair);

  const nlohmann::json* value_;
  std::string path_;
  std::shared_ptr<State> state_;
};

// Writes the fields of one object.
class Writer {
 public:
  Writer();
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void operator()(const char* name, bool value);
  void operator()(const char* name, int value) { (*this)(name, std::int64_t{value}); }
  void operator()(const char* name, std::uint32_t value) { (*this)(name, std::int64_t{value}); }
  void operator()(const char* name, std::int64_t value);
  void operator()(const char* name, double value);  // null if it is nan or infinite
  void operator()(const char* name, const std::string& value);
  void operator()(const char* name, const char* value) { (*this)(name, std::string(value)); }
  void operator()(const char* name, const std::vector<int>& values);
  void operator()(const char* name, const std::vector<double>& values);
  void operator()(const char* name, const std::vector<std::string>& values);
  template <class T>
    requires std::is_class_v<T>
  void operator()(const char* name, const T& value) {
    Writer inner;
    fields(inner, value);
    put(name, inner);
  }
  template <class T>
  void operator()(const char* name, const std::map<std::string, T>& values) {
    Writer inner;
    for (const auto& [key, value] : values) inner(key.c_str(), value);
    put(name, inner);
  }
  template <class T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (value) (*this)(name, *value);
  }
  template <class T>
  void operator()(const char* name, const std::vector<T>& values) {
    put_list(name);
    for (const auto& value : values) {
      Writer inner;
      fields(inner, value);
      append(name, inner);
    }
  }
  template <class T>
  void required(const char* name, const T& value) {
    (*this)(name, value);
  }
  void needs(const char*) {}
  template <class E>
  void choice(const char* name, const E& value, const auto& names) {
    for (const auto& [candidate, label] : names) {
      if (candidate == value) (*this)(name, label);
    }
  }
  void document(const char* name, const std::string& text);  // omitted if the text is not JSON
  std::string text() const;
  static constexpr bool kReads = false;

 private:
  void put(const char* name, const Writer& inner);
  void put_list(const char* name);
  void append(const char* name, const Writer& inner);

  std::unique_ptr<nlohmann::json> value_;
};

template <class T>
std::string encode_struct(const T& value) {
  Writer writer;
  fields(writer, value);
  return writer.text();
}

template <class T>
Result<T> decode_struct(std::string_view text, T value = {}) {
  WEIR_TRY(const Document document, Document::parse(text));
  Reader reader(document.root());
  fields(reader, value);
  if (const auto error = reader.error()) return *error;
  return value;
}

}  // namespace weir::protocol
