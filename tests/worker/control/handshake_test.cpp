// SPDX-License-Identifier: Apache-2.0
#include "worker/control/handshake.h"

#include <gtest/gtest.h>

namespace weir::control {
namespace handshake_test {

const std::string kKey = "the key of the job";
const std::string kNonce(64, 'a');

Claim claim() {
  return {.job_uid = "job-uid",
          .peer = {.worker_index = 3, .pod_uid = "pod-uid"},
          .nonce = make_nonce()};
}

TEST(Handshake, AcceptsTheHolderOfTheKey) {
  const Claim mine = claim();

  const auto text = claim_text(mine, kKey, kNonce);
  ASSERT_TRUE(text.ok());
  const auto seen = check_claim(*text, "job-uid", kKey, kNonce);

  ASSERT_TRUE(seen.ok()) << seen.error().message;
  EXPECT_EQ(seen->peer.worker_index, 3);
  EXPECT_EQ(seen->peer.pod_uid, "pod-uid");
  EXPECT_TRUE(check_acceptance(acceptance_text(*seen, kKey, kNonce), mine, kKey, kNonce).ok());
}

TEST(Handshake, RefusesAWrongKeyAndAnotherJob) {
  const auto text = *claim_text(claim(), kKey, kNonce);

  EXPECT_EQ(check_claim(text, "job-uid", "another key", kNonce).error().message, "wrong job key");
  EXPECT_EQ(check_claim(text, "other-job", kKey, kNonce).error().message, "another job");
}

TEST(Handshake, AProofIsWorthNothingForAnotherNonceIndexOrPod) {
  const auto text = *claim_text(claim(), kKey, kNonce);
  auto as_other_index = text, as_other_pod = text;
  as_other_index.replace(text.find(" 3 "), 3, " 4 ");
  as_other_pod.replace(text.find("pod-uid"), 7, "pod-xyz");

  EXPECT_FALSE(check_claim(text, "job-uid", kKey, std::string(64, 'b')).ok());
  EXPECT_FALSE(check_claim(as_other_index, "job-uid", kKey, kNonce).ok());
  EXPECT_FALSE(check_claim(as_other_pod, "job-uid", kKey, kNonce).ok());
}

TEST(Handshake, ACoordinatorWithoutTheKeyIsFound) {
  const Claim mine = claim();
  const auto text = *claim_text(mine, kKey, kNonce);

  EXPECT_FALSE(check_acceptance(acceptance_text(mine, "guess", kNonce), mine, kKey, kNonce).ok());
  const auto own_proof = text.substr(text.rfind(' ') + 1);  // sent back to its maker
  EXPECT_FALSE(check_acceptance("ok " + own_proof, mine, kKey, kNonce).ok());
  EXPECT_FALSE(check_acceptance("", mine, kKey, kNonce).ok());
}

TEST(Handshake, PassesTheReasonOfARefusalOn) {
  const auto refused = check_acceptance(refusal_text("wrong job key"), claim(), kKey, kNonce);

  EXPECT_EQ(refused.error().code, Code::kForbidden);
  EXPECT_EQ(refused.error().message, "refused by the coordinator: wrong job key");
}

TEST(Handshake, RefusesTextThatIsNoClaim) {
  const std::string proof(64, '0');
  for (const std::string& text :
       {std::string(), std::string("GET / HTTP/1.1"), std::string(1000, ' '),
        "job-uid 99999999999999999999 pod " + kNonce + ' ' + proof,
        "job-uid -1 pod " + kNonce + ' ' + proof, "job-uid 1x pod " + kNonce + ' ' + proof,
        "job-uid 1  " + kNonce + ' ' + proof, "job-uid 1 pod xyz " + proof,
        "job-uid 1 pod " + kNonce + " zz"}) {
    const auto seen = check_claim(text, "job-uid", kKey, kNonce);
    ASSERT_FALSE(seen.ok()) << text;
    EXPECT_EQ(seen.error().code, Code::kInvalid) << text;
  }
}

TEST(Handshake, ChallengesOfOtherProtocolsAreRefused) {
  const std::string nonce = make_nonce();

  EXPECT_EQ(*read_challenge(challenge_text(nonce)), nonce);
  EXPECT_FALSE(read_challenge("weir-control/2 " + nonce).ok());
  EXPECT_FALSE(read_challenge("SSH-2.0-OpenSSH").ok());
}

TEST(Handshake, NamesWithWhiteSpaceAreRefusedBeforeTheyAreSent) {
  Claim mine = claim();
  mine.peer.pod_uid = "two words";

  EXPECT_FALSE(claim_text(mine, kKey, kNonce).ok());
}

}  // namespace handshake_test
}  // namespace weir::control
