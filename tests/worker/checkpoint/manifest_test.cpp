// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/manifest.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace weir::checkpoint {
namespace manifest_test {

Manifest example() {
  return {.step = 2000,
          .samples = 128000,
          .compressed_steps = 412,
          .job = "team-a/gpt",
          .model = "gpt-tiny",
          .digest = "sha256:1",
          .shapes = "sha256:2",
          .settings = {{"--lr", "0.001"}, {"--seed", "7"}},
          .seed = 7,
          .optimizer = {.learning_rate = 1e-3, .beta1 = 0.9, .schedule = "cosine"},
          .revision = 4,
          .incarnation = 1,
          .plan_json = R"({"revision":4})",
          .export_json = R"({"config":{"vocab_size":24}})",
          .files = {{layer_file(0), 100, std::string(64, 'a')},
                    {layer_file(1), 200, std::string(64, 'b')}}};
}

TEST(Manifest, GivesBackWhatWasPutIn) {
  const auto manifest = decode_manifest(encode(example()));

  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(*manifest, example());
}

TEST(Manifest, WithoutStepsWithCodecsSaysNothingOfThem) {
  Manifest raw = example();
  raw.compressed_steps = 0;
  const std::string text = encode(raw);
  EXPECT_EQ(text.find("compressedSteps"), std::string::npos) << "as in older versions";
  EXPECT_EQ(decode_manifest(text)->compressed_steps, 0);
  raw.compressed_steps = raw.step + 1;
  EXPECT_FALSE(decode_manifest(encode(raw)));
}

TEST(Manifest, OfAVersionWithoutShapesIsRead) {
  Manifest old = example();
  old.shapes.clear();
  old.settings.clear();
  const std::string text = encode(old);
  EXPECT_EQ(text.find("shapes"), std::string::npos);

  const auto manifest = decode_manifest(text);

  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(*manifest, old);
}

TEST(Manifest, OfASnapshotHasTheLayersOfAStage) {
  Manifest part = example();
  part.first_layer = 3;
  part.files = {{layer_file(3), 100, std::string(64, 'a')},
                {layer_file(4), 200, std::string(64, 'b')}};
  const auto manifest = decode_manifest(encode(part));

  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_EQ(*manifest, part);
  part.first_layer = 2;
  EXPECT_FALSE(decode_manifest(encode(part))) << "the files are of other layers";
  part.first_layer = -1;
  EXPECT_FALSE(decode_manifest(encode(part)));
}

TEST(Manifest, IgnoresFieldsThatItDoesNotKnow) {
  std::string text = encode(example());
  text.insert(1, "\"later\": {\"x\": 1},");

  EXPECT_TRUE(decode_manifest(text));
}

TEST(Manifest, RefusesWhatIsNotOne) {
  const std::string good = encode(example());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.rfind(from), from.size(), to);
    return text;
  };
  const std::vector<std::string> bad = {
      "",
      "[]",
      good.substr(0, good.size() / 2),
      changed("weir.dev/checkpoint/v1", "weir.dev/checkpoint/v2"),
      changed("\"step\": 2000", "\"step\": \"x\""),
      changed("\"step\": 2000", "\"step\": 1e300"),
      changed("\"step\": 2000", "\"step\": 9223372036854775808"),
      changed("\"incarnation\": 1", "\"incarnation\": 4294967296"),
      changed("\"digest\"", "\"digets\""),
      changed("\"files\"", "\"flies\""),
      changed(layer_file(1), layer_file(2)),
      changed(layer_file(1), "../../etc/passwd"),
      changed("\"bytes\": 200", "\"bytes\": -1")};
  for (const std::string& text : bad) EXPECT_FALSE(decode_manifest(text)) << text;
}

TEST(Manifest, NamesSortBySteps) {
  EXPECT_EQ(folder_name(2000), "step-0000002000");
  EXPECT_EQ(unfinished_name(7), "step-0000000007.tmp");
  EXPECT_EQ(layer_file(12), "layer-00012.safetensors");
  EXPECT_EQ(parse_folder(folder_name(12345678901))->step, 12345678901);
  EXPECT_TRUE(parse_folder(unfinished_name(7))->unfinished);
  for (const char* other :
       {"step-", "step-12", "step-000000000x", "lost+found", "step-0000000001x"}) {
    EXPECT_FALSE(parse_folder(other)) << other;
  }
}

}  // namespace manifest_test
}  // namespace weir::checkpoint
