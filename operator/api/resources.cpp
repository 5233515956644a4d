// SPDX-License-Identifier: Apache-2.0
#include "operator/api/resources.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include <nlohmann/json.hpp>

namespace weir::api {
namespace {

using nlohmann::json;

constexpr int kMostDigits = 15;  // so that nothing overflows 128 bits

// A suffix stands for factor x 10^exponent thousandths.
struct Scale {
  Int128 factor = 1;
  int exponent = 3;
};

std::optional<Scale> scale_of(const std::string& suffix) {
  static constexpr std::array<std::pair<const char*, int>, 9> kDecimal{{{"n", -9},
                                                                        {"u", -6},
                                                                        {"m", -3},
                                                                        {"", 0},
                                                                        {"k", 3},
                                                                        {"M", 6},
                                                                        {"G", 9},
                                                                        {"T", 12},
                                                                        {"P", 15}}};
  static constexpr std::array kBinary = {"Ki", "Mi", "Gi", "Ti", "Pi"};
  for (const auto& [text, exponent] : kDecimal) {
    if (suffix == text) return Scale{1, 3 + exponent};
  }
  Int128 factor = 1;
  for (const char* text : kBinary) {
    factor *= 1024;
    if (suffix == text) return Scale{factor, 3};
  }
  if (suffix.size() < 2 || suffix.size() > 4 || (suffix[0] != 'e' && suffix[0] != 'E'))
    return std::nullopt;
  const bool minus = suffix[1] == '-';
  const std::size_t first = minus || suffix[1] == '+' ? 2 : 1;
  int exponent = 0;
  if (first == suffix.size()) return std::nullopt;
  for (std::size_t i = first; i < suffix.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(suffix[i])) == 0) return std::nullopt;
    exponent = 10 * exponent + (suffix[i] - '0');
  }
  if (exponent > 15) return std::nullopt;
  return Scale{1, 3 + (minus ? -exponent : exponent)};
}

json parsed(const std::string& text) {
  json value = text.empty() ? json::object() : json::parse(text, nullptr, false);
  return value.is_object() ? value : json::object();
}

json template_spec(const WorkerGroup& group) {
  const json whole = parsed(group.template_json);
  const auto spec = whole.find("spec");
  return spec != whole.end() && spec->is_object() ? *spec : json::object();
}

// The resources of container trainer: the template's win over the group's.
json resources_of(const WorkerGroup& group) {
  const json spec = template_spec(group);
  const auto containers = spec.find("containers");
  if (containers != spec.end() && containers->is_array()) {
    for (const json& container : *containers) {
      if (!container.is_object() || container.value("name", json()) != "trainer") continue;
      const auto resources = container.find("resources");
      if (resources != container.end() && resources->is_object()) return *resources;
    }
  }
  return parsed(group.resources);
}

}  // namespace

std::optional<Int128> read_quantity(const std::string& text) {
  Int128 value = 0;
  int digits = 0, decimals = 0;
  bool point = false;
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    if (text[i] == '.' && !point) {
      point = true;
      continue;
    }
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) break;
    if (++digits > kMostDigits) return std::nullopt;
    value = 10 * value + (text[i] - '0');
    decimals += point ? 1 : 0;
  }
  const auto scale = scale_of(text.substr(i));
  if (digits == 0 || !scale) return std::nullopt;
  value *= scale->factor;
  for (int e = scale->exponent - decimals; e > 0; --e) value *= 10;
  Int128 divisor = 1;
  for (int e = scale->exponent - decimals; e < 0; ++e) divisor *= 10;
  return (value + divisor - 1) / divisor;
}

std::string quantity_text(Int128 thousandths) {
  const bool whole = thousandths % 1000 == 0;
  Int128 rest = whole ? thousandths / 1000 : thousandths;
  std::string digits;
  do {
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(rest % 10)));
    rest /= 10;
  } while (rest > 0);
  return whole ? digits : digits + "m";
}

namespace {

// A quantity as users write it: text or a number.
std::optional<Int128> read_quantity_of(const json& quantity) {
  return read_quantity(quantity.is_string() ? quantity.get<std::string>() : quantity.dump());
}

}  // namespace

std::optional<int> cpus_without_limit(const WorkerGroup& group) {
  const json resources = resources_of(group);
  const auto cpus = [&](const char* kind) -> std::optional<Int128> {
    const json amounts = resources.value(kind, json());
    if (!amounts.is_object() || !amounts.contains("cpu")) return std::nullopt;
    return read_quantity_of(amounts["cpu"]);
  };
  const auto requested = cpus("requests");
  constexpr Int128 kOne = 1000, kMost = 1024;  // thousandths of a CPU; the worker's limit
  if (cpus("limits") || !requested || *requested <= 0) return std::nullopt;
  return static_cast<int>(std::min(kMost, (*requested + kOne - 1) / kOne));
}

std::optional<Resources> requests_of(const WorkerGroup& group) {
  const json resources = resources_of(group);
  json requests = parsed(resources.contains("limits") ? resources["limits"].dump() : "");
  if (resources.contains("requests") && resources["requests"].is_object()) {
    requests.update(resources["requests"]);
  }
  Resources out;
  for (const auto& [resource, quantity] : requests.items()) {
    const auto value = read_quantity_of(quantity);
    if (!value) return std::nullopt;
    out[resource] = *value;
  }
  return out;
}

bool tolerates(const WorkerGroup& group, const std::vector<Taint>& taints) {
  json tolerations = template_spec(group).value("tolerations", json());
  if (!tolerations.is_array()) tolerations = json::parse(group.tolerations, nullptr, false);
  const auto text = [](const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const auto matches = [&](const json& toleration, const Taint& taint) {
    if (!toleration.is_object()) return false;
    const std::string key = text(toleration, "key"), effect = text(toleration, "effect");
    if (!effect.empty() && effect != taint.effect) return false;
    if (text(toleration, "operator") == "Exists") return key.empty() || key == taint.key;
    return key == taint.key && text(toleration, "value") == taint.value;
  };
  return std::ranges::all_of(taints, [&](const Taint& taint) {
    if (taint.effect == "PreferNoSchedule") return true;
    return tolerations.is_array() &&
           std::ranges::any_of(tolerations, [&](const json& each) { return matches(each, taint); });
  });
}

std::map<std::string, std::string> node_selector_of(const WorkerGroup& group) {
  auto selector = group.node_selector;
  const json written = template_spec(group).value("nodeSelector", json());
  if (!written.is_object()) return selector;
  for (const auto& [key, value] : written.items()) {
    if (value.is_string()) selector[key] = value.get<std::string>();
  }
  return selector;
}

}  // namespace weir::api
