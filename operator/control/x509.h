// SPDX-License-Identifier: Apache-2.0
// Converts OpenSSL's certificates and keys to PEM text and back. Only sources of this room include
// it.
#pragma once

#include <memory>
#include <string>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include "worker/base/clock.h"

namespace weir::control_server {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using X509Ptr = std::unique_ptr<X509, decltype(&X509_free)>;
using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;

Bio memory();
Bio memory(const std::string& text);  // reads the text, which must outlive it
std::string text_of(const Bio& bio);

std::string pem_of(X509* certificate);
std::string pem_of(EVP_PKEY* key);
// Null if the text has no key or its key has a password.
Key key_of(const std::string& pem);
SystemTime time_of(const ASN1_TIME* time);

}  // namespace weir::control_server
