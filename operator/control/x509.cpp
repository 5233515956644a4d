// SPDX-License-Identifier: Apache-2.0
#include "operator/control/x509.h"

#include <ctime>

#include <openssl/err.h>
#include <openssl/pem.h>

#include "worker/base/check.h"

namespace weir::control_server {
namespace {

int no_password(char*, int, int, void*) {
  return -1;
}

}  // namespace

Bio memory() {
  return {BIO_new(BIO_s_mem()), BIO_free};
}

Bio memory(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

std::string text_of(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_ctrl(bio.get(), BIO_CTRL_INFO, 0, &data);
  return {data, static_cast<std::size_t>(size)};
}

std::string pem_of(X509* certificate) {
  const Bio text = memory();
  WEIR_CHECK(PEM_write_bio_X509(text.get(), certificate) == 1, "a certificate can be written");
  return text_of(text);
}

std::string pem_of(EVP_PKEY* key) {
  const Bio text = memory();
  WEIR_CHECK(
      PEM_write_bio_PKCS8PrivateKey(text.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
      "a key can be written");
  return text_of(text);
}

Key key_of(const std::string& pem) {
  const Bio text = memory(pem);
  Key key(PEM_read_bio_PrivateKey(text.get(), nullptr, no_password, nullptr), EVP_PKEY_free);
  ERR_clear_error();
  return key;
}

SystemTime time_of(const ASN1_TIME* time) {
  std::tm parts{};
  ASN1_TIME_to_tm(time, &parts);
  return std::chrono::system_clock::from_time_t(timegm(&parts));
}

}  // namespace weir::control_server
