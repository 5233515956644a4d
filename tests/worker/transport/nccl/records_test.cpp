// SPDX-License-Identifier: Apache-2.0
#include "worker/transport/nccl/records.h"

#include <gtest/gtest.h>

namespace weir::transport::nccl {
namespace records_test {

TEST(NcclRecord, SurvivesTheWire) {
  Record record{.type = RecordType::kTaken,
                .channel = Channel::kBackward,
                .part = 3,
                .sequence = 7,
                .bytes = std::uint64_t{1} << 40,
                .busy = 12'345};
  record.data[2] = std::byte{9};

  const auto read = decode_record(encode_record(record));

  ASSERT_TRUE(read);
  EXPECT_EQ(read->type, record.type);
  EXPECT_EQ(read->channel, record.channel);
  EXPECT_EQ(read->part, record.part);
  EXPECT_EQ(read->sequence, record.sequence);
  EXPECT_EQ(read->bytes, record.bytes);
  EXPECT_EQ(read->busy, record.busy);
  EXPECT_EQ(read->data, record.data);
}

TEST(NcclRecord, RefusesUnknownTypesChannelsAndLongParts) {
  const RecordText sound = encode_record({.type = RecordType::kCredit});
  ASSERT_TRUE(decode_record(sound));
  for (const auto& [at, value] : {std::pair{0, 0}, {0, 6}, {1, 2}, {2, 225}, {3, 1}}) {
    RecordText text = sound;
    text[static_cast<std::size_t>(at)] = static_cast<std::byte>(value);
    EXPECT_FALSE(decode_record(text)) << at << " " << value;
  }
}

TEST(NcclHello, SurvivesTheWireAndCutsALongName) {
  Hello hello{.facts = {.nccl = 22809, .gpu = std::string(300, 'g')}};
  hello.id.fill(std::byte{0x5a});

  const auto read = decode_hello(encode_hello(hello, Channel::kForward));

  ASSERT_TRUE(read);
  EXPECT_EQ(read->facts.nccl, 22809);
  EXPECT_EQ(read->id, hello.id);
  EXPECT_EQ(read->facts.gpu, std::string(92, 'g'));
  EXPECT_FALSE(decode_hello({.type = RecordType::kCredit}));
}

}  // namespace records_test
}  // namespace weir::transport::nccl
