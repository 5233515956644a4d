// SPDX-License-Identifier: Apache-2.0
#include "operator/control/own_certificate.h"

#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>

#include "operator/control/certificates.h"
#include "operator/control/x509.h"
#include "tests/support/certificates.h"
#include "tests/support/temp_dir.h"
#include "worker/base/time_text.h"

namespace weir::control_server {
namespace own_certificate_test {

using std::chrono::hours;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kName = "op.sys.svc";

class OwnCertificateFiles : public testing::Test {
 protected:
  void write(const std::string& certificate, const std::string& key, const std::string& authority) {
    dir_.file("tls.crt", certificate);
    dir_.file("tls.key", key);
    dir_.file("ca.crt", authority);
  }
  Result<OwnCertificate> read() const {
    return read_own_certificate(dir_.path().string(), kName, now_);
  }
  std::string refusal() const {
    const auto own = read();
    EXPECT_FALSE(own.ok());
    if (own) return "";
    EXPECT_EQ(own.error().code, Code::kInvalid);
    EXPECT_EQ(own.error().message.find('\n'), std::string::npos);
    EXPECT_THAT(own.error().message, StartsWith(dir_.path().string() + "/"));
    return own.error().message.substr(dir_.path().string().size() + 1);
  }
  http::TlsIdentity leaf(const std::vector<std::string>& names, SystemTime at) const {
    return *issue_leaf(authority_, names, at);
  }

  const test::TempDir dir_;
  const SystemTime now_ = SystemClock().system_now();
  const Authority authority_ = make_authority(now_);
  const http::TlsIdentity leaf_ = leaf({kName}, now_);
  const std::string ca_ = authority_.certificate_pem;
};

TEST_F(OwnCertificateFiles, AreTakenWithWhateverStandsBetweenTheCertificates) {
  std::string without_end = ca_;
  without_end.pop_back();
  write(leaf_.certificate_pem, leaf_.key_pem, "subject=authority\n" + without_end);

  const auto own = read();

  ASSERT_TRUE(own.ok()) << own.error().message;
  EXPECT_EQ(own->identity.certificate_pem, leaf_.certificate_pem);
  EXPECT_EQ(own->identity.key_pem, leaf_.key_pem);
  EXPECT_EQ(own->authority_pem, ca_) << "bundles are put together from it";
  EXPECT_EQ(to_rfc3339(own->until), to_rfc3339(now_ + kLeafLife));
}

TEST_F(OwnCertificateFiles, EndWithTheFirstOfTheirChain) {
  const Authority brief = make_authority(now_ - kAuthorityLife + hours(1));
  const auto longer = issue_leaf(brief, {kName}, now_);
  write(longer->certificate_pem, longer->key_pem, brief.certificate_pem);

  const auto own = read();

  ASSERT_TRUE(own.ok()) << own.error().message;
  EXPECT_LT(own->until, now_ + hours(2));
}

TEST_F(OwnCertificateFiles, MayTrustAnAuthorityBelowTheRoot) {
  const auto root = test::make_authority("root");
  const auto middle = test::make_authority("middle", &root);
  const auto pair = test::make_certificate(middle, {kName, "localhost"});

  for (const std::string& trusted : {root.certificate_pem, middle.certificate_pem}) {
    write(pair.certificate_pem + middle.certificate_pem, pair.key_pem, trusted);
    const auto own = read();
    ASSERT_TRUE(own.ok()) << own.error().message;
    EXPECT_EQ(own->authority_pem, trusted);
  }

  write(pair.certificate_pem, pair.key_pem, root.certificate_pem);
  EXPECT_THAT(refusal(), AllOf(StartsWith("tls.crt: is not trusted by "), HasSubstr("/ca.crt: "),
                               HasSubstr("unable to get local issuer certificate")));
}

TEST_F(OwnCertificateFiles, NeedNoCaFileWhereTheChainEndsInAnAuthority) {
  write(leaf_.certificate_pem + ca_, leaf_.key_pem, "");
  EXPECT_EQ(read()->authority_pem, ca_);

  std::filesystem::remove(dir_.path() / "ca.crt");
  EXPECT_EQ(read()->authority_pem, ca_);

  const auto self = test::make_self_signed({kName});
  dir_.file("tls.crt", self.certificate_pem);
  dir_.file("tls.key", self.key_pem);
  EXPECT_EQ(read()->authority_pem, self.certificate_pem) << "it has signed itself";

  write(leaf_.certificate_pem, leaf_.key_pem, "");
  EXPECT_THAT(refusal(), AllOf(StartsWith("ca.crt: is missing or empty, and "),
                               EndsWith("/tls.crt holds no authority after its first "
                                        "certificate")));

  write(leaf_.certificate_pem + make_authority(now_).certificate_pem, leaf_.key_pem, "");
  EXPECT_THAT(refusal(), StartsWith("tls.crt: is not trusted by its last certificate: "));
}

TEST_F(OwnCertificateFiles, TakeTheNameOfAWildcard) {
  const auto wild = leaf({"*.sys.svc"}, now_);
  write(wild.certificate_pem, wild.key_pem, ca_);

  EXPECT_TRUE(read().ok());
}

std::string with_password(const std::string& key_pem) {
  const Key key = key_of(key_pem);
  const Bio text = memory();
  char password[] = "secret";
  PEM_write_bio_PKCS8PrivateKey(text.get(), key.get(), EVP_aes_128_cbc(), password, 6, nullptr,
                                nullptr);
  return text_of(text);
}

TEST_F(OwnCertificateFiles, AreRefusedWithTheFileAndTheReason) {
  const http::TlsIdentity other = leaf({"op.other.svc", "op"}, now_);
  const http::TlsIdentity old = leaf({kName}, now_ - kLeafLife - hours(1));
  const http::TlsIdentity early = leaf({kName}, now_ + hours(1));
  const http::TlsIdentity nameless = leaf({"10.0.0.7"}, now_);
  const std::string damaged = ca_.substr(0, ca_.size() / 2);
  const std::string &crt = leaf_.certificate_pem, &key = leaf_.key_pem;
  const struct {
    std::string certificate, key, authority, message;
  } cases[] = {
      {"", key, ca_, "tls.crt: holds no certificate in PEM"},
      {std::string("\x30\x82\x01\x00", 4), key, ca_, "tls.crt: holds no certificate in PEM"},
      {crt + damaged, key, ca_, "tls.crt: certificate 2 cannot be read"},
      {std::string(70000, 'x'), key, ca_, "tls.crt: is larger than 64 KiB"},
      {crt, "key", ca_, "tls.key: holds no private key in PEM without a password"},
      {crt, with_password(key), ca_, "tls.key: holds no private key in PEM without a password"},
      {crt, other.key_pem, ca_, "tls.key: is not the key of the first certificate in "},
      {ca_ + crt, key, ca_, "tls.key: is not the key of the first certificate in "},
      {old.certificate_pem, old.key_pem, ca_, "tls.crt: expired at " + to_rfc3339(now_ - hours(1))},
      {early.certificate_pem, early.key_pem, ca_, "tls.crt: is not valid before "},
      {other.certificate_pem, other.key_pem, ca_,
       "tls.crt: is not for op.sys.svc, which workers connect to; it has only op.other.svc, op"},
      {nameless.certificate_pem, nameless.key_pem, ca_,
       "tls.crt: is not for op.sys.svc, which workers connect to; it has no DNS name at all"},
      {crt, key, "nothing", "ca.crt: holds no certificate in PEM"},
      {crt, key, damaged, "ca.crt: certificate 1 cannot be read"},
      {crt, key, make_authority(now_).certificate_pem, "tls.crt: is not trusted by "},
  };
  for (const auto& c : cases) {
    write(c.certificate, c.key, c.authority);
    EXPECT_THAT(refusal(), StartsWith(c.message));
  }
}

// A kubelet swaps all files at once; here it does so while the key is read, after the certificate.
TEST_F(OwnCertificateFiles, AreOfOneVersionAlsoWhenTheyAreSwappedMeanwhile) {
  write(leaf_.certificate_pem, "", ca_);
  const std::string pipe = dir_.path() / "tls.key";
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const http::TlsIdentity next = leaf({kName}, now_);
  std::jthread kubelet([&] {
    std::ofstream reader_has_it(pipe);  // waits until the key is being read
    std::filesystem::remove(pipe);
    write(next.certificate_pem, next.key_pem, ca_);
    reader_has_it << next.key_pem;
  });

  const auto own = read();

  ASSERT_TRUE(own.ok()) << own.error().message;
  EXPECT_EQ(own->identity.certificate_pem, next.certificate_pem);
}

TEST_F(OwnCertificateFiles, AreRefusedWhenTheyCannotBeRead) {
  write(leaf_.certificate_pem, leaf_.key_pem, ca_);
  std::filesystem::remove(dir_.path() / "tls.key");
  EXPECT_EQ(refusal(), "tls.key: No such file or directory");

  std::filesystem::create_directory(dir_.path() / "tls.key");
  EXPECT_EQ(refusal(), "tls.key: Is a directory");

  std::filesystem::remove(dir_.path() / "tls.key");
  std::filesystem::remove(dir_.path() / "ca.crt");
  dir_.file("tls.key", leaf_.key_pem);
  std::filesystem::create_directory(dir_.path() / "ca.crt");
  EXPECT_EQ(refusal(), "ca.crt: Is a directory");
}

}  // namespace own_certificate_test
}  // namespace weir::control_server
