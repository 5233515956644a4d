// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/step_header.h"

#include <limits>
#include <string>
#include <type_traits>

#include "worker/base/digest.h"

namespace weir::engine {
namespace {

constexpr std::uint32_t kMagic = 0x53524557;  // "WERS" in memory
constexpr std::size_t kCheckedBytes = kStepHeaderBytes - sizeof(std::uint32_t);

class Writer {
 public:
  explicit Writer(StepHeaderBytes& bytes) : bytes_(bytes) {}
  template <class T>
  void put(T value) {
    static_assert(std::is_unsigned_v<T>);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_[at_++] = static_cast<std::byte>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xFF);
    }
  }

 private:
  StepHeaderBytes& bytes_;
  std::size_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T get() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value |= std::to_integer<std::uint64_t>(bytes_[at_++]) << (8 * i);
    }
    return static_cast<T>(value);
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

template <class T>
T fitting(int value) {
  const bool fits = value >= 0 && value <= std::numeric_limits<T>::max();
  return fits ? static_cast<T>(value) : T{0};
}

constexpr unsigned kCodecBits = 4;

// A codec's number is its place in kCodecs.
static_assert(schedule::kCodecs[3] == schedule::Codec::kInt6 &&
              schedule::kCodecs.size() <= 1U << kCodecBits);

std::uint8_t packed(schedule::Codec forward, schedule::Codec backward) {
  const auto low = static_cast<unsigned>(forward), high = static_cast<unsigned>(backward);
  return static_cast<std::uint8_t>(high << kCodecBits | low);
}

Result<schedule::Codec> codec_from(unsigned number) {
  if (number < schedule::kCodecs.size()) return schedule::kCodecs[number];
  return invalid("step header has a codec that is not known to this worker, number " +
                 std::to_string(number));
}

}  // namespace

std::uint32_t job_mark(std::string_view job_uid) {
  return crc32c(std::as_bytes(std::span(job_uid.data(), job_uid.size())));
}

StepHeader make_step_header(std::string_view job_uid, std::int64_t step, const schedule::Plan& plan,
                            int replica, int boundary, int incarnation) {
  return {.job = job_mark(job_uid),
          .step = static_cast<std::uint64_t>(step),
          .epoch = plan.revision,
          .incarnation = fitting<std::uint16_t>(incarnation),
          .micro_batches =
              fitting<std::uint16_t>(plan.micro_batches[static_cast<std::size_t>(replica)]),
          .micro_batch_size = fitting<std::uint16_t>(plan.schedule.micro_batch_size),
          .k = fitting<std::uint8_t>(plan.schedule.k),
          .forward = codec_of(plan.codecs.forward, boundary),
          .backward = codec_of(plan.codecs.backward, boundary)};
}

StepHeaderBytes encode(const StepHeader& header) {
  StepHeaderBytes bytes{};
  Writer out(bytes);
  out.put(kMagic);
  out.put(header.job);
  out.put(header.step);
  out.put(header.epoch);
  out.put(header.incarnation);
  out.put(header.micro_batches);
  out.put(header.micro_batch_size);
  out.put(header.k);
  out.put(packed(header.forward, header.backward));
  out.put(crc32c(std::span(bytes).first(kCheckedBytes)));
  return bytes;
}

Result<StepHeader> decode_step_header(std::span<const std::byte> bytes) {
  if (bytes.size() != kStepHeaderBytes) {
    return invalid("step header has " + std::to_string(bytes.size()) + " bytes");
  }
  Reader in(bytes);
  if (in.get<std::uint32_t>() != kMagic) return invalid("step header has a wrong magic number");
  StepHeader header;
  header.job = in.get<std::uint32_t>();
  header.step = in.get<std::uint64_t>();
  header.epoch = in.get<std::uint32_t>();
  header.incarnation = in.get<std::uint16_t>();
  header.micro_batches = in.get<std::uint16_t>();
  header.micro_batch_size = in.get<std::uint16_t>();
  header.k = in.get<std::uint8_t>();
  const unsigned codecs = in.get<std::uint8_t>();
  if (in.get<std::uint32_t>() != crc32c(bytes.first(kCheckedBytes))) {
    return invalid("step header has a wrong checksum");
  }
  WEIR_TRY(header.forward, codec_from(codecs & ((1U << kCodecBits) - 1)));
  WEIR_TRY(header.backward, codec_from(codecs >> kCodecBits));
  return header;
}

Status check_step_header(const StepHeader& header, const StepHeader& expected) {
  const auto differ = [](const char* field, const std::string& got, const std::string& want) {
    return Error{Code::kConflict,
                 std::string("step header: ") + field + " is " + got + ", expected " + want};
  };
  const auto differs = [&](const char* field, std::uint64_t got, std::uint64_t want) {
    return differ(field, std::to_string(got), std::to_string(want));
  };
  const auto contradicts = [](std::uint16_t got, std::uint16_t want) {
    return got != 0 && want != 0 && got != want;
  };
  if (header.job != expected.job) return differs("job", header.job, expected.job);
  if (header.step != expected.step) return differs("step", header.step, expected.step);
  if (header.epoch != expected.epoch) return differs("epoch", header.epoch, expected.epoch);
  if (header.incarnation != expected.incarnation) {
    return differs("incarnation", header.incarnation, expected.incarnation);
  }
  if (header.forward != expected.forward) {
    return differ("forward codec", name(header.forward), name(expected.forward));
  }
  if (header.backward != expected.backward) {
    return differ("backward codec", name(header.backward), name(expected.backward));
  }
  if (contradicts(header.micro_batches, expected.micro_batches)) {
    return differs("micro-batches", header.micro_batches, expected.micro_batches);
  }
  if (contradicts(header.micro_batch_size, expected.micro_batch_size)) {
    return differs("micro-batch size", header.micro_batch_size, expected.micro_batch_size);
  }
  if (contradicts(header.k, expected.k)) return differs("k", header.k, expected.k);
  return Unit{};
}

}  // namespace weir::engine
