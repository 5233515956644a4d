// SPDX-License-Identifier: Apache-2.0
// The enumerations of a PipelineJob's spec. Each has one table of texts, for both directions.
#pragma once

#include <sstream>
#include <string>

namespace weir::api {

enum class AdaptationMode : unsigned char { kOff, kObserve, kAuto };
enum class CleanupPolicy : unsigned char { kRunning, kAll, kNone };
enum class Coarsest : unsigned char { kBf16, kInt8, kInt6 };
enum class KMode : unsigned char { kAuto, kFixed };
enum class NeighborCopies : unsigned char { kAuto, kOn, kOff };
enum class PlacementMode : unsigned char { kLateBinding, kPinned };
enum class ProfileSource : unsigned char { kMeasure, kConfigMap };
enum class RestartScope : unsigned char { kWorker, kJob };
enum class RuleAction : unsigned char { kFailJob, kRestart, kRestartIgnoreMax, kAvoidNode };
enum class SplitMode : unsigned char { kAuto, kNever };
enum class SyncMode : unsigned char { kExact, kPartial, kAuto };

// The texts in the order of the values.
template <class E>
inline constexpr const char* kTexts = "";
template <>
inline constexpr const char* kTexts<AdaptationMode> = "Off Observe Auto";
template <>
inline constexpr const char* kTexts<CleanupPolicy> = "Running All None";
template <>
inline constexpr const char* kTexts<Coarsest> = "BF16 Int8 Int6";
template <>
inline constexpr const char* kTexts<KMode> = "Auto Fixed";
template <>
inline constexpr const char* kTexts<NeighborCopies> = "Auto On Off";
template <>
inline constexpr const char* kTexts<PlacementMode> = "LateBinding Pinned";
template <>
inline constexpr const char* kTexts<ProfileSource> = "Measure ConfigMap";
template <>
inline constexpr const char* kTexts<RestartScope> = "Worker Job";
template <>
inline constexpr const char* kTexts<RuleAction> =
    "FailJob Restart RestartIgnoreMax ReplaceWorkerAvoidNode";
template <>
inline constexpr const char* kTexts<SplitMode> = "Auto Never";
template <>
inline constexpr const char* kTexts<SyncMode> = "Exact Partial Auto";

// A value of E, or the text of a value that only another version of the CRD knows, for a refusal.
template <class E>
class Choice {
 public:
  // NOLINTBEGIN(google-explicit-constructor)
  Choice(E value = {}) : value_(value) {
    std::istringstream texts(kTexts<E>);
    for (int i = 0; i <= static_cast<int>(value); ++i) texts >> text_;
  }
  Choice(const std::string& text) : text_(text), known_(false) {
    std::istringstream texts(kTexts<E>);
    std::string each;
    for (int i = 0; !known_ && texts >> each; ++i) {
      known_ = each == text;
      value_ = static_cast<E>(i);
    }
  }
  Choice(const char* text) : Choice(std::string(text)) {}
  // NOLINTEND(google-explicit-constructor)

  bool known() const { return known_; }
  const std::string& text() const { return text_; }
  E value() const { return value_; }  // only if it is known
  bool operator==(E other) const { return known_ && value_ == other; }
  bool operator==(const Choice&) const = default;

 private:
  E value_{};
  std::string text_;
  bool known_ = true;
};

}  // namespace weir::api
