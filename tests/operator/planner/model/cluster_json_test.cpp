// SPDX-License-Identifier: Apache-2.0
#include "operator/planner/model/cluster_json.h"

#include <gmock/gmock.h>

namespace weir::planner {
namespace cluster_json_test {

using namespace std::chrono_literals;

constexpr const char* kGood = R"({
  "apiVersion": "weir.dev/cluster/v1",
  "deviceClasses": [
    {"name": "A100-40", "memoryBytes": 42338615296, "memoryReserve": 0.2, "speedFactor": 1.0},
    {"name": "V100-16", "memoryBytes": 17179869184, "speedFactor": 2.5}
  ],
  "servers": [
    {"name": "gpu-a", "class": "A100-40", "devices": 2, "workerGroup": "a100",
     "local": {"bandwidth": 2.4e11, "latency": 5e-6}},
    {"name": "gpu-b", "class": "V100-16",
     "devices": [{"pod": "p0", "local": 0}, {"pod": "p0", "local": 1}]}
  ],
  "links": {
    "default": {"bandwidth": 1.25e9, "latency": 1e-4, "availableShare": 0.5},
    "pairs": [
      {"from": "gpu-a", "to": "gpu-b", "bandwidth": 2e9},
      {"from": "gpu-b", "to": "gpu-a", "availableShare": 0.25, "oneWay": true}
    ]
  }
})";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  const auto cluster = decode_cluster(text, "cluster.json");
  EXPECT_FALSE(cluster.ok());
  return cluster.ok() ? "accepted" : cluster.error().message;
}

std::string short_refusal(const std::string& text) {
  const auto cluster = decode_short_cluster(text);
  EXPECT_FALSE(cluster.ok());
  return cluster.ok() ? "accepted" : cluster.error().message;
}

TEST(ClusterJson, ReadsEveryField) {
  const auto cluster = decode_cluster(kGood, "cluster.json");

  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  ASSERT_EQ(cluster->devices.size(), 4U);
  EXPECT_EQ(cluster->devices[1].node, "gpu-a");
  EXPECT_EQ(cluster->devices[1].pod, "gpu-a-1");
  EXPECT_EQ(cluster->devices[1].local, 1);
  EXPECT_EQ(cluster->devices[1].worker_group, "a100");
  EXPECT_EQ(cluster->devices[3].pod, "p0");
  EXPECT_EQ(cluster->devices[3].device_class, "V100-16");
  EXPECT_EQ(usable_bytes(*cluster, cluster->devices[0]), 33870892236) << "20 % reserve";
  EXPECT_EQ(usable_bytes(*cluster, cluster->devices[2]), 15461882265) << "10 % by default";
  EXPECT_EQ(cluster->classes[1].speed_factor, 2.5);
}

TEST(ClusterJson, LaterPairsWinAndBothDirectionsCountUnlessOneWay) {
  const auto cluster = decode_cluster(kGood, "cluster.json");

  ASSERT_TRUE(cluster.ok());
  const LinkRate down = link_between(*cluster, "gpu-a", "gpu-b");
  EXPECT_EQ(down.bytes_per_second, 2e9);
  EXPECT_EQ(down.available_share, 0.5) << "the default's";
  EXPECT_EQ(down.latency, 100us);
  const LinkRate up = link_between(*cluster, "gpu-b", "gpu-a");
  EXPECT_EQ(effective_rate(up, 1), 1.25e9 * 0.25);
  EXPECT_EQ(link_between(*cluster, "gpu-a", "gpu-a").bytes_per_second, 2.4e11);
  EXPECT_EQ(link_between(*cluster, "gpu-b", "gpu-b").bytes_per_second, 12e9);
}

TEST(ClusterJson, CurvesFollowTheSizeOfTheMessage) {
  const auto cluster =
      decode_cluster(with(R"("bandwidth": 1.25e9, "latency": 1e-4, "availableShare": 0.5)",
                          R"("bandwidth": {"curve": {"log2mb": [-0.1, 1, 2], "max": 4e9}})"),
                     "cluster.json");

  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  const LinkRate link = link_between(*cluster, "gpu-a", "elsewhere");
  EXPECT_DOUBLE_EQ(effective_rate(link, 1'000'000), 2e9);
  EXPECT_DOUBLE_EQ(effective_rate(link, 2'000'000), 2.9e9);
  EXPECT_DOUBLE_EQ(effective_rate(link, 1'000'000'000), 4e9) << "the most";
  EXPECT_DOUBLE_EQ(effective_rate(link, 1), 1e6) << "the least";
  EXPECT_NEAR(transfer_seconds(link, 2'000'000), 50e-6 + 2e6 / 2.9e9, 1e-12);
}

TEST(ClusterJson, ErrorsNameLineAndPointer) {
  EXPECT_EQ(
      refusal(with(R"("class": "V100-16")", R"("class": "H200")")),
      "cluster.json:10: /servers/1/class: no device class \"H200\" (known: A100-40, V100-16)");
  EXPECT_EQ(refusal(with(R"("speedFactor": 2.5)", R"("speedFactor": 0)")),
            "cluster.json:5: /deviceClasses/1/speedFactor: expected a factor > 0, got 0");
  EXPECT_EQ(refusal(with(R"("memoryBytes": 17179869184)", R"("memoryBytes": "16GB")")),
            "cluster.json:5: /deviceClasses/1/memoryBytes: expected a number of bytes >= 0, got "
            "\"16GB\"");
  EXPECT_EQ(refusal(with(R"("from": "gpu-b", "to": "gpu-a")", R"("from": "gpu-b", "to": "gpu-x")")),
            "cluster.json:17: /links/pairs/1/to: no server \"gpu-x\"");
  EXPECT_EQ(refusal(with(R"("availableShare": 0.25)", R"("availableShare": 1.5)")),
            "cluster.json:17: /links/pairs/1/availableShare: expected a share above 0 and at most "
            "1, got 1.5");
  EXPECT_EQ(refusal(with("cluster/v1", "cluster/v9")),
            "cluster.json:2: /apiVersion: unknown version \"weir.dev/cluster/v9\", expected "
            "\"weir.dev/cluster/v1\"");
  EXPECT_EQ(refusal(with(R"("name": "gpu-b")", R"("name": "gpu-a")")),
            "cluster.json:10: /servers/1/name: server \"gpu-a\" is there twice");
  EXPECT_EQ(refusal(with(R"("local": 1})", R"("local": 0})")),
            "cluster.json:11: /servers/1/devices: pod \"p0\" with local 0 is there twice");
  EXPECT_EQ(refusal(with(R"("bandwidth": 2e9)", R"("bandwidth": 1e400)")).substr(0, 16),
            "cluster.json:16:");
  EXPECT_THAT(refusal(with(R"("devices": 2)", R"("devices": 5000)")),
              testing::HasSubstr("cluster.json:8: /servers/0/devices: expected a whole number"));
}

TEST(ClusterJson, WhatIsMissingOrOfTheWrongKindIsNamed) {
  const struct {
    std::string text, message;
  } cases[] = {
      {with(R"("apiVersion": "weir.dev/cluster/v1",)", ""),
       "1: /apiVersion: expected \"weir.dev/cluster/v1\""},
      {with(R"("deviceClasses")", R"("classes")"),
       "1: /deviceClasses: expected a list of device classes"},
      {with(R"({"name": "A100-40", "memoryBytes")", R"(7, {"name": "A100-40", "memoryBytes")"),
       "4: /deviceClasses/0: expected an object"},
      {with(R"("name": "V100-16")", R"("name": "A100-40")"),
       "5: /deviceClasses/1/name: device class \"A100-40\" is there twice"},
      {with(R"("servers")", R"("hosts")"), "1: /servers: expected a list of servers"},
      {with(R"({"name": "gpu-a")", R"(null, {"name": "gpu-a")"),
       "8: /servers/0: expected an object"},
      {with(R"("name": "gpu-b", )", ""), "10: /servers/1/name: expected a name, got nothing"},
      {with(R"("workerGroup": "a100")", R"("workerGroup": 7)"),
       "8: /servers/0/workerGroup: expected a name, got 7"},
      {with(R"("devices": 2)", R"("devices": 1.5)"),
       "8: /servers/0/devices: expected a whole number, got 1.5"},
      {with(R"({"pod": "p0", "local": 0})", R"("p0")"),
       "11: /servers/1/devices/0: expected an object"},
      {with(R"("local": {"bandwidth": 2.4e11, "latency": 5e-6})", R"("local": 2.4e11)"),
       "9: /servers/0/local: expected an object"},
      {with(R"("bandwidth": 1.25e9,)", R"("bandwidth": {"curve": {"log2mb": [1, 2]}},)"),
       "14: /links/default/bandwidth: expected bytes per second or {\"curve\": {\"log2mb\": [a, b, "
       "c], \"max\": bytes per second}}"},
      {with(R"("links": {)", R"("links": [], "later": {)"), "13: /links: expected an object"},
      {with(R"("pairs": [)", R"("pairs": 1, "more": [)"), "15: /links/pairs: expected a list"},
      {with(R"({"from": "gpu-a", "to": "gpu-b", "bandwidth": 2e9})", "3"),
       "16: /links/pairs/0: expected an object"},
      {with(R"("to": "gpu-b")", R"("to": "gpu-a")"),
       "16: /links/pairs/0/to: the link inside a server is its \"local\""},
      {with(R"("oneWay": true)", R"("oneWay": "yes")"),
       "17: /links/pairs/1/oneWay: expected true or false, got \"yes\""},
  };
  for (const auto& c : cases) EXPECT_EQ(refusal(c.text), "cluster.json:" + c.message);
}

TEST(ClusterJson, AFieldThatNobodyReadsIsRefusedByItsName) {
  const struct {
    std::string text, message;
  } cases[] = {
      {with(R"("links": {)", R"("latency": 1, "links": {)"),
       "1: /: no field is named 'latency' (known: apiVersion, deviceClasses, servers, links)"},
      {with(R"("speedFactor": 2.5)", R"("speed_factor": 2.5)"),
       "5: /deviceClasses/1: no field is named 'speed_factor' (known: name, memoryBytes, "
       "memoryReserve, speedFactor)"},
      {with(R"("workerGroup": "a100")", R"("group": "a100")"),
       "8: /servers/0: no field is named 'group' (known: name, class, devices, workerGroup, "
       "local)"},
      {with(R"("latency": 5e-6})", R"("latencySeconds": 5e-6})"),
       "9: /servers/0/local: no field is named 'latencySeconds' (known: bandwidth, latency, "
       "availableShare)"},
      {with(R"("local": 1})", R"("index": 1})"),
       "11: /servers/1/devices/1: no field is named 'index' (known: pod, local)"},
      {with(R"("availableShare": 0.25)", R"("share": 0.25)"),
       "17: /links/pairs/1: no field is named 'share' (known: from, to, oneWay, bandwidth, "
       "latency, "
       "availableShare)"},
  };
  for (const auto& c : cases) EXPECT_EQ(refusal(c.text), "cluster.json:" + c.message);
}

TEST(ClusterJson, NamesHaveNoControlCharacters) {
  EXPECT_EQ(refusal(with(R"("name": "gpu-b")", R"("name": "gpu\u001b[31m")")),
            "cluster.json:10: /servers/1/name: a control character in the name \"gpu\\u001b[31m\"");
}

TEST(ClusterJson, HoldsOneTo4096Devices) {
  const std::string none = R"({"apiVersion": "weir.dev/cluster/v1",
    "deviceClasses": [{"name": "A"}], "servers": [{"name": "s", "class": "A", "devices": 0}]})";
  EXPECT_EQ(refusal(none), "cluster.json:2: /servers: no server has a device");
  EXPECT_EQ(refusal(R"({"apiVersion": "weir.dev/cluster/v1", "deviceClasses": [{"name": "A"}],
    "servers": [{"name": "s", "class": "A", "devices": 4096}, {"name": "t", "class": "A"}]})"),
            "cluster.json:2: /servers/1: more than 4096 devices");
}

TEST(ClusterJson, BrokenJsonNamesTheLine) {
  EXPECT_THAT(refusal("{\n\n  \"apiVersion\" 3}"), testing::StartsWith("cluster.json:3: "));
  EXPECT_THAT(refusal(""), testing::StartsWith("cluster.json:1: "));
  EXPECT_THAT(refusal(std::string(100, '[')), testing::HasSubstr("nested deeper than 32 levels"));
  EXPECT_THAT(refusal("[]"), testing::HasSubstr("expected an object"));
}

TEST(ShortCluster, SaysClassesMemoryBandwidthAndSpeed) {
  const auto cluster = decode_short_cluster("4xA:32e9@1e9+2xB:16e9/2");

  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  ASSERT_EQ(cluster->devices.size(), 6U);
  EXPECT_EQ(cluster->devices[0].node, "s0");
  EXPECT_EQ(cluster->devices[5].node, "s5");
  EXPECT_EQ(cluster->devices[5].device_class, "B");
  EXPECT_EQ(usable_bytes(*cluster, cluster->devices[5]), 16'000'000'000) << "no reserve";
  EXPECT_EQ(cluster->classes[1].speed_factor, 2);
  EXPECT_EQ(transfer_seconds(link_between(*cluster, "s0", "s5"), 1'000'000'000), 1.0);
}

TEST(ShortCluster, PartsMayHaveTheirOwnBandwidth) {
  const auto cluster = decode_short_cluster("2xA@4e9+2xB@1e+9");

  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ(link_between(*cluster, "s0", "s1").bytes_per_second, 4e9);
  EXPECT_EQ(link_between(*cluster, "s0", "s2").bytes_per_second, 1e9) << "the slower of both";
  EXPECT_EQ(link_between(*cluster, "s3", "s2").bytes_per_second, 1e9);
}

TEST(ShortCluster, RefusesWhatIsNoCluster) {
  EXPECT_EQ(short_refusal("4x"), "cluster \"4x\": a class has no name");
  EXPECT_EQ(short_refusal("0xA"), "cluster \"0xA\": \"0\" is no number of devices");
  EXPECT_EQ(short_refusal("2xA:lots"), "cluster \"2xA:lots\": \"lots\" is no memory in bytes");
  for (const char* twice : {"2xA/2/3", "2xA@1e9@2e9", "2xA:1e9:2e9", "2xA/2@1e9/2"}) {
    EXPECT_THAT(short_refusal(twice), testing::HasSubstr("class A has two parts with")) << twice;
  }
  EXPECT_EQ(short_refusal("2xA+2xA"), "cluster \"2xA+2xA\": class A is there twice");
  EXPECT_EQ(short_refusal("5000xA"),
            "cluster \"5000xA\": expected a whole number of at most 4096 devices");
  EXPECT_EQ(short_refusal("1.5xA"),
            "cluster \"1.5xA\": expected a whole number of at most 4096 devices");
  EXPECT_EQ(short_refusal("4000xA+4000xB"), "cluster \"4000xA+4000xB\": more than 4096 devices");
  EXPECT_EQ(short_refusal("300xA@1e9+300xB@2e9"),
            "cluster \"300xA@1e9+300xB@2e9\": different bandwidths for more than 512 devices: use "
            "a cluster.json");
  EXPECT_EQ(short_refusal("2xA@0"), "cluster \"2xA@0\": \"0\" is no bandwidth in bytes per second");
  EXPECT_EQ(short_refusal("2xA/-1"), "cluster \"2xA/-1\": \"-1\" is no speed factor");
  EXPECT_EQ(
      short_refusal("2xA\n:x"),
      "cluster \"2xA?:x\": a class is not named \"A?\" with \"?\" in it; \"+\" joins two classes");
  for (const char* joined : {"4xA100,2xL4", "4xA100;2xL4", "4xA100 2xL4", "4xA100, 2xL4"}) {
    EXPECT_THAT(short_refusal(joined), testing::HasSubstr("\"+\" joins two classes")) << joined;
  }
  EXPECT_EQ(short_refusal("A"), "cluster \"A\": expected COUNTxCLASS[:BYTES][@RATE][/FACTOR]");
}

}  // namespace cluster_json_test
}  // namespace weir::planner
