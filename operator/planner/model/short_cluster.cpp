// SPDX-License-Identifier: Apache-2.0
// "4xA:32e9@1e9+4xB:16e9/2", a cluster on a command line.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>
#include <vector>

#include "operator/planner/model/cluster_json.h"
#include "operator/planner/model/limits.h"

namespace weir::planner {
namespace {

constexpr double kMostUnlikeDevices = 512;  // every pair is a link then

struct Part {
  int count = 0;
  DeviceClass device_class;
  double bytes_per_second = 0;  // 0: not said
};

Error bad(std::string_view text, const std::string& reason) {
  std::string message = "cluster \"" + std::string(text) + "\": " + reason;
  for (char& c : message) {  // an error is one line
    if (static_cast<unsigned char>(c) < 0x20 || c == '\x7f') c = '?';
  }
  return {Code::kInvalid, std::move(message)};
}

// Where the next separator starts: '+' of an exponent ("32e+9") is none.
std::size_t end_of_part(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '+') continue;
    const bool exponent = i > 1 && (text[i - 1] == 'e' || text[i - 1] == 'E') &&
                          (text[i - 2] == '.' || (text[i - 2] >= '0' && text[i - 2] <= '9')) &&
                          text.substr(0, i).find_first_of(":@/") != std::string_view::npos;
    if (!exponent) return i;
  }
  return text.size();
}

Result<double> number(std::string_view all, std::string_view text, const std::string& what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) ||
      value <= 0 || value > 1e15) {
    return bad(all, "\"" + std::string(text) + "\" is no " + what);
  }
  return value;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.size(), text.find_first_not_of(' '));
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

// The character of a name that suggests another separator of classes, as in "A100,2xL4" and
// "A100 2xL4"; "" = none.
std::string foreign_separator(std::string_view name) {
  constexpr std::string_view kUsual = " -_.()#";  // "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    const bool known = std::isalnum(c) != 0 || c >= 0x80 || kUsual.find(name[i]) != kUsual.npos;
    if (!known) return std::string(1, name[i]);
    const std::size_t word_end = name.find_first_not_of("0123456789", i + 1);
    const bool count =
        c == ' ' && word_end != name.npos && word_end > i + 1 && name[word_end] == 'x';
    if (count) return std::string(name.substr(i, word_end + 1 - i));
  }
  return "";
}

Result<Part> part_of(std::string_view all, std::string_view text) {
  text = trimmed(text);
  const std::size_t x = text.find('x');
  if (x == std::string_view::npos) return bad(all, "expected COUNTxCLASS[:BYTES][@RATE][/FACTOR]");
  Part part;
  WEIR_TRY(const double count, number(all, text.substr(0, x), "number of devices"));
  if (count != std::floor(count) || count > double{kMostDevices}) {
    return bad(all, "expected a whole number of at most 4096 devices");
  }
  part.count = static_cast<int>(count);
  text.remove_prefix(x + 1);
  const std::size_t name_end = std::min(text.size(), text.find_first_of(":@/"));
  part.device_class.name = trimmed(text.substr(0, name_end));
  part.device_class.memory_reserve = 0;
  if (part.device_class.name.empty()) return bad(all, "a class has no name");
  if (const std::string found = foreign_separator(part.device_class.name); !found.empty()) {
    return bad(all, "a class is not named \"" + part.device_class.name + "\" with \"" + found +
                        "\" in it; \"+\" joins two classes");
  }
  text.remove_prefix(name_end);
  std::string seen;
  while (!text.empty()) {
    const char kind = text.front();
    const std::size_t end = std::min(text.size(), text.find_first_of(":@/", 1));
    const std::string_view value = text.substr(1, end - 1);
    if (seen.find(kind) != seen.npos) {
      return bad(all, "class " + part.device_class.name + " has two parts with \"" + kind + "\"");
    }
    seen += kind;
    if (kind == ':') {
      WEIR_TRY(const double bytes, number(all, value, "memory in bytes"));
      part.device_class.memory_bytes = static_cast<std::int64_t>(bytes);
    } else if (kind == '@') {
      WEIR_TRY(part.bytes_per_second, number(all, value, "bandwidth in bytes per second"));
    } else {
      WEIR_TRY(part.device_class.speed_factor, number(all, value, "speed factor"));
    }
    text.remove_prefix(end);
  }
  return part;
}

bool unlike(const std::vector<Part>& parts) {
  return std::ranges::any_of(parts, [&](const Part& part) {
    return part.bytes_per_second != parts.front().bytes_per_second;
  });
}

// A link between unlike classes is as slow as the slower of the two.
void add_links(const std::vector<Part>& parts, Cluster& cluster) {
  if (!unlike(parts)) return;
  std::vector<double> rate;  // by device
  for (const Part& part : parts) {
    rate.insert(rate.end(), static_cast<std::size_t>(part.count), part.bytes_per_second);
  }
  for (std::size_t a = 0; a < rate.size(); ++a) {
    for (std::size_t b = 0; b < rate.size(); ++b) {
      const double slower = std::min(rate[a], rate[b]);
      if (a == b || slower == cluster.default_bytes_per_second) continue;
      cluster.links.push_back(
          {cluster.devices[a].node, cluster.devices[b].node, slower, cluster.default_latency});
    }
  }
}

}  // namespace

Result<Cluster> decode_short_cluster(std::string_view text) {
  std::vector<Part> parts;
  double total = 0;
  for (std::string_view rest = text;;) {
    const std::size_t end = end_of_part(rest);
    WEIR_TRY(Part part, part_of(text, rest.substr(0, end)));
    total += part.count;
    parts.push_back(std::move(part));
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  if (total > double{kMostDevices}) return bad(text, "more than 4096 devices");
  double said = Cluster().default_bytes_per_second;
  for (const Part& part : parts) {
    if (part.bytes_per_second <= 0) continue;
    said = part.bytes_per_second;
    break;
  }
  Cluster cluster;
  cluster.default_latency = std::chrono::nanoseconds(0);
  cluster.default_bytes_per_second = said;
  std::set<std::string> names;
  for (Part& part : parts) {
    if (!names.insert(part.device_class.name).second) {
      return bad(text, "class " + part.device_class.name + " is there twice");
    }
    if (part.bytes_per_second <= 0) part.bytes_per_second = said;
    said = part.bytes_per_second;
    cluster.classes.push_back(part.device_class);
    for (int d = 0; d < part.count; ++d) {
      Device device;
      device.node = "s" + std::to_string(cluster.devices.size());
      device.pod = device.node;
      device.device_class = part.device_class.name;
      device.memory_bytes = part.device_class.memory_bytes;
      cluster.devices.push_back(std::move(device));
    }
  }
  if (total > kMostUnlikeDevices && unlike(parts)) {
    return bad(text, "different bandwidths for more than 512 devices: use a cluster.json");
  }
  add_links(parts, cluster);
  return cluster;
}

}  // namespace weir::planner
