// SPDX-License-Identifier: Apache-2.0
// Reads JSON of the API server without exceptions. simdjson parses it, because watch events of
// thousands of pods are the largest part of the operator's CPU time. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <simdjson.h>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/objects.h"
#include "worker/base/result.h"

namespace weir::api {

constexpr std::size_t kMaxJsonDepth = 64;  // a PodTemplateSpec needs about 15

class Field;

// One parsed text. Fields refer to it, so it must outlive them. For one thread.
class JsonDocument {
 public:
  JsonDocument();
  ~JsonDocument();
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  // text: one object, nested at most kMaxJsonDepth deep, with nothing behind it. Call it once.
  Status parse(std::string_view text);
  Field root();
  // Path and wanted type of the first value that had a wrong type when it was read; "" = none.
  const std::string& problem() const { return problem_; }

 private:
  friend class Field;
  // One step on the way to a value. The text of a path is made only if there is a problem.
  struct Step {
    int parent;  // index; -1 = the root
    int item;    // of a list; -1 = a member
    std::string_view key;
  };
  int step(int parent, int item, std::string_view key);
  std::string path(int step) const;

  std::unique_ptr<simdjson::dom::parser> parser_;
  simdjson::dom::element root_;
  std::vector<Step> steps_;
  std::string problem_;
};

// A value, or its absence. A null counts as missing. A value of a wrong type reads as missing, and
// the document notes it as its problem.
class Field {
 public:
  Field operator[](std::string_view key) const;  // the key's characters outlive the document
  bool present() const { return value_.has_value(); }

  std::string text(std::string_view fallback = "") const;
  std::string quantity() const;  // text or number, as text
  int integer(int fallback = 0) const;
  std::int64_t integer64(std::int64_t fallback = 0) const;
  bool boolean(bool fallback = false) const;
  std::optional<int> maybe_integer() const;
  std::optional<std::int64_t> maybe_integer64() const;
  std::optional<Time> time() const;
  std::vector<Field> items() const;
  std::vector<std::string> texts() const;
  std::vector<int> integers() const;
  std::map<std::string, std::string> text_map() const;
  std::string json_text() const;  // "" when missing

 private:
  friend class JsonDocument;
  Field(JsonDocument* document, int step) : document_(document), step_(step) {}
  Field(JsonDocument* document, int step, simdjson::dom::element value);
  void wrong(const char* wanted) const;

  JsonDocument* document_;
  int step_;
  std::optional<simdjson::dom::element> value_;
};

// Find parts of a JSON text without building values. The parts are views of the text; the caller
// parses those that it needs. kInvalid: the text is no object (list), or it is incomplete.
using EachMember = std::function<void(std::string_view key, std::string_view value)>;
Status each_member(std::string_view object, const EachMember& each);
Result<std::string_view> json_member(std::string_view object, std::string_view key);  // "": none
Result<std::vector<std::string_view>> json_elements(std::string_view list);

}  // namespace weir::api
