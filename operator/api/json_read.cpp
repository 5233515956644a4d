// SPDX-License-Identifier: Apache-2.0
#include "operator/api/json_read.h"

#include <utility>

#include "worker/base/time_text.h"

namespace weir::api {
namespace {

namespace dom = simdjson::dom;
namespace ondemand = simdjson::ondemand;

constexpr std::size_t kKeptCapacity = std::size_t{1} << 20;  // bytes of text

// Each thread keeps one parser with its buffers from one document to the next.
std::unique_ptr<dom::parser>& spare_parser() {
  thread_local std::unique_ptr<dom::parser> spare;
  return spare;
}

Error broken(simdjson::error_code error) {
  if (error == simdjson::DEPTH_ERROR)
    return {Code::kInvalid, "nested deeper than " + std::to_string(kMaxJsonDepth)};
  if (error == simdjson::INCORRECT_TYPE) return {Code::kInvalid, "not a JSON object"};
  return {Code::kInvalid, "not JSON"};
}

// The text of a value, byte for byte.
simdjson::error_code text_of(ondemand::value value, std::string_view& out) {
  ondemand::json_type type{};
  if (const auto error = value.type().get(type)) return error;
  if (type == ondemand::json_type::object) {
    ondemand::object object;
    if (const auto error = value.get_object().get(object)) return error;
    return object.raw_json().get(out);
  }
  if (type == ondemand::json_type::array) {
    ondemand::array array;
    if (const auto error = value.get_array().get(array)) return error;
    return array.raw_json().get(out);
  }
  out = value.raw_json_token();  // with the white space behind the value
  out = out.substr(0, out.find_last_not_of(" \t\r\n") + 1);
  return simdjson::SUCCESS;
}

// Parses a padded copy of a text. A view of the copy becomes a view of the text at the same place.
class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text), copy_(text) {}

  // Reads the text as an object or an array. Call it once.
  template <class Value>
  simdjson::error_code open(Value& value) {
    if (const auto error = parser_.iterate(copy_).get(document_)) return error;
    return document_.get<Value>().get(value);
  }
  simdjson::error_code place(ondemand::value value, std::string_view& out) const {
    if (const auto error = text_of(value, out)) return error;
    out = text_.substr(static_cast<std::size_t>(out.data() - copy_.data()), out.size());
    return simdjson::SUCCESS;
  }
  simdjson::error_code end() {
    const bool nothing_left = document_.current_location().error() == simdjson::OUT_OF_BOUNDS;
    return nothing_left ? simdjson::SUCCESS : simdjson::TRAILING_CONTENT;
  }

 private:
  std::string_view text_;
  simdjson::padded_string copy_;
  ondemand::parser parser_;
  ondemand::document document_;
};

simdjson::error_code walk_object(Scan& scan, const EachMember& each) {
  ondemand::object object;
  if (const auto error = scan.open(object)) return error;
  for (auto member : object) {
    ondemand::field field;
    if (const auto error = std::move(member).get(field)) return error;
    std::string_view key, value;
    if (const auto error = field.unescaped_key().get(key)) return error;
    if (const auto error = scan.place(field.value(), value)) return error;
    each(key, value);
  }
  return scan.end();
}

simdjson::error_code find_member(Scan& scan, std::string_view key, std::string_view& out) {
  ondemand::object object;
  ondemand::value value;
  if (const auto error = scan.open(object)) return error;
  const auto error = object.find_field_unordered(key).get(value);
  if (error == simdjson::NO_SUCH_FIELD) return simdjson::SUCCESS;
  return error ? error : scan.place(value, out);
}

simdjson::error_code walk_list(Scan& scan, std::vector<std::string_view>& out) {
  ondemand::array array;
  if (const auto error = scan.open(array)) return error;
  for (auto item : array) {
    ondemand::value value;
    if (const auto error = std::move(item).get(value)) return error;
    std::string_view text;
    if (const auto error = scan.place(value, text)) return error;
    out.push_back(text);
  }
  return scan.end();
}

}  // namespace

JsonDocument::JsonDocument() : parser_(std::move(spare_parser())) {
  if (!parser_) parser_ = std::make_unique<dom::parser>();
}

JsonDocument::~JsonDocument() {
  if (parser_->capacity() <= kKeptCapacity) spare_parser() = std::move(parser_);
}

Status JsonDocument::parse(std::string_view text) {
  if (text.size() > parser_->capacity()) {
    if (const auto error = parser_->allocate(text.size(), kMaxJsonDepth)) return broken(error);
  }
  if (const auto error = parser_->parse(text.data(), text.size()).get(root_)) return broken(error);
  if (!root_.is_object()) return broken(simdjson::INCORRECT_TYPE);
  return Unit{};
}

Field JsonDocument::root() {
  return {this, -1, root_};
}

int JsonDocument::step(int parent, int item, std::string_view key) {
  steps_.push_back({parent, item, key});
  return static_cast<int>(steps_.size()) - 1;
}

std::string JsonDocument::path(int step) const {
  if (step < 0) return "";
  const Step& last = steps_[static_cast<std::size_t>(step)];
  std::string text = path(last.parent);
  if (last.item >= 0) return text + "[" + std::to_string(last.item) + "]";
  return text.empty() ? std::string(last.key) : text + "." + std::string(last.key);
}

Field::Field(JsonDocument* document, int step, dom::element value) : Field(document, step) {
  if (!value.is_null()) value_ = value;
}

void Field::wrong(const char* wanted) const {
  if (document_->problem_.empty()) document_->problem_ = document_->path(step_) + ": not " + wanted;
}

Field Field::operator[](std::string_view key) const {
  const int step = document_->step(step_, -1, key);
  if (!value_) return {document_, step};
  dom::object object;
  if (value_->get(object) != simdjson::SUCCESS) {
    wrong("an object");
    return {document_, step};
  }
  dom::element found;
  if (object.at_key(key).get(found) != simdjson::SUCCESS) return {document_, step};
  return {document_, step, found};
}

std::string Field::text(std::string_view fallback) const {
  if (!value_) return std::string(fallback);
  std::string_view text;
  if (value_->get(text) == simdjson::SUCCESS) return std::string(text);
  wrong("a string");
  return std::string(fallback);
}

std::string Field::quantity() const {
  return value_ && value_->is_number() ? simdjson::to_string(*value_) : text();
}

std::optional<std::int64_t> Field::maybe_integer64() const {
  if (!value_) return std::nullopt;
  std::int64_t number = 0;
  if (value_->get(number) == simdjson::SUCCESS) return number;
  wrong("a 64-bit integer");
  return std::nullopt;
}

std::optional<int> Field::maybe_integer() const {
  const auto wide = maybe_integer64();
  if (!wide) return std::nullopt;
  if (std::in_range<int>(*wide)) return static_cast<int>(*wide);
  wrong("a 32-bit integer");
  return std::nullopt;
}

int Field::integer(int fallback) const {
  return maybe_integer().value_or(fallback);
}
std::int64_t Field::integer64(std::int64_t fallback) const {
  return maybe_integer64().value_or(fallback);
}

bool Field::boolean(bool fallback) const {
  if (!value_) return fallback;
  bool value = false;
  if (value_->get(value) == simdjson::SUCCESS) return value;
  wrong("true or false");
  return fallback;
}

std::optional<Time> Field::time() const {
  if (!value_) return std::nullopt;
  const auto parsed = parse_rfc3339(text());
  if (!parsed) wrong("a time (RFC 3339)");
  return parsed;
}

std::vector<Field> Field::items() const {
  std::vector<Field> all;
  if (!value_) return all;
  dom::array array;
  if (value_->get(array) != simdjson::SUCCESS) {
    wrong("a list");
    return all;
  }
  all.reserve(array.size());
  for (const dom::element item : array) {
    const int step = document_->step(step_, static_cast<int>(all.size()), "");
    all.push_back({document_, step, item});
  }
  return all;
}

std::vector<std::string> Field::texts() const {
  std::vector<std::string> all;
  for (const Field& item : items()) all.push_back(item.text());
  return all;
}

std::vector<int> Field::integers() const {
  std::vector<int> all;
  for (const Field& item : items()) all.push_back(item.integer());
  return all;
}

std::map<std::string, std::string> Field::text_map() const {
  std::map<std::string, std::string> all;
  if (!value_) return all;
  dom::object object;
  if (value_->get(object) != simdjson::SUCCESS) {
    wrong("an object");
    return all;
  }
  for (const auto& [key, item] : object) {
    all.emplace(key, Field(document_, document_->step(step_, -1, key), item).text());
  }
  return all;
}

std::string Field::json_text() const {
  return value_ ? simdjson::minify(*value_) : "";
}

Status each_member(std::string_view object, const EachMember& each) {
  Scan scan(object);
  if (const auto error = walk_object(scan, each)) return broken(error);
  return Unit{};
}

Result<std::string_view> json_member(std::string_view object, std::string_view key) {
  Scan scan(object);
  std::string_view found;
  if (const auto error = find_member(scan, key, found)) return broken(error);
  return found;
}

Result<std::vector<std::string_view>> json_elements(std::string_view list) {
  Scan scan(list);
  std::vector<std::string_view> all;
  if (const auto error = walk_list(scan, all)) return broken(error);
  return all;
}

}  // namespace weir::api
