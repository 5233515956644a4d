// SPDX-License-Identifier: Apache-2.0
#include "tests/support/certificates.h"

#include <memory>
#include <optional>

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "worker/base/check.h"

namespace weir::test {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using X509Ptr = std::unique_ptr<X509, decltype(&X509_free)>;
using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;

std::string text_of(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_ctrl(bio.get(), BIO_CTRL_INFO, 0, &data);
  return {data, static_cast<std::size_t>(size)};
}
Bio memory() {
  return {BIO_new(BIO_s_mem()), BIO_free};
}
Bio memory(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

void extend(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  WEIR_CHECK(extension != nullptr, "an extension can be made");
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

X509Ptr new_certificate(EVP_PKEY* key, const std::string& common_name) {
  X509Ptr certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), X509_VERSION_3);
  long serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), 4);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.data()),
                             static_cast<int>(common_name.size()), -1, 0);
  return certificate;
}

Certificate pem_of(X509* certificate, EVP_PKEY* key) {
  const Bio text = memory();
  PEM_write_bio_X509(text.get(), certificate);
  const Bio key_text = memory();
  PEM_write_bio_PKCS8PrivateKey(key_text.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return {text_of(text), text_of(key_text)};
}

struct Signer {
  explicit Signer(const Certificate& from) {
    const Bio text = memory(from.certificate_pem);
    certificate.reset(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
    const Bio key_text = memory(from.key_pem);
    key.reset(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
    WEIR_CHECK(certificate && key, "the authority can be read");
  }
  X509Ptr certificate{nullptr, X509_free};
  Key key{nullptr, EVP_PKEY_free};
};

Certificate signed_for(const std::vector<std::string>& names, const Signer* by) {
  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const X509Ptr certificate = new_certificate(key.get(), "test");
  X509* const issuer = by != nullptr ? by->certificate.get() : certificate.get();
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer));
  std::string alternatives;
  for (const auto& name : names) {
    const bool ip =
        name.find_first_not_of("0123456789.") == name.npos || name.find(':') != name.npos;
    alternatives += (alternatives.empty() ? "" : ",") + std::string(ip ? "IP:" : "DNS:") + name;
  }
  extend(certificate.get(), issuer, NID_subject_alt_name, alternatives);
  WEIR_CHECK(
      X509_sign(certificate.get(), by != nullptr ? by->key.get() : key.get(), EVP_sha256()) > 0,
      "signed");
  return pem_of(certificate.get(), key.get());
}

}  // namespace

Certificate make_authority(const std::string& common_name, const Certificate* issuer) {
  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const X509Ptr certificate = new_certificate(key.get(), common_name);
  std::optional<Signer> signer;
  if (issuer != nullptr) signer.emplace(*issuer);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(signer ? signer->certificate.get()
                                                                       : certificate.get()));
  extend(certificate.get(), certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  extend(certificate.get(), certificate.get(), NID_key_usage, "critical,keyCertSign");
  EVP_PKEY* const by = signer ? signer->key.get() : key.get();
  WEIR_CHECK(X509_sign(certificate.get(), by, EVP_sha256()) > 0, "signed");
  return pem_of(certificate.get(), key.get());
}

Certificate make_certificate(const Certificate& authority, const std::vector<std::string>& names) {
  const Signer issuer(authority);
  return signed_for(names, &issuer);
}

Certificate make_self_signed(const std::vector<std::string>& names) {
  return signed_for(names, nullptr);
}

}  // namespace weir::test
