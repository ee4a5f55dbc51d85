# What is in the programs, as SPDX 2.3: share/weft/weft.spdx.json of the build and of the installation. A row has a
# library as NOTICE names it, the version that the programs are built with, its licence, and the shared
# libraries of it that programs name (tests/lint/check_sbom.sh compares them with the programs).
set(sbom_rows
  "oneDNN|${onednn_MAJOR}.${onednn_MINOR}.${onednn_PATCH}|Apache-2.0|libdnnl"
  "libgomp|${CMAKE_C_COMPILER_VERSION}|GPL-3.0-or-later WITH GCC-exception-3.1|"
  "igraph|${IGRAPH_VERSION}|GPL-2.0-or-later|libigraph"
  "CBC|${CBC_VERSION}|EPL-1.0|libCbcSolver libClp"
  "OpenSSL|${OPENSSL_VERSION}|Apache-2.0|libssl libcrypto"
  "nghttp2|${NGHTTP2_VERSION}|MIT|libnghttp2"
  "libcurl|${CURL_VERSION}|curl|libcurl"
  "zstd|${ZSTD_VERSION}|BSD-3-Clause|libzstd"
  "zlib|${ZLIB_VERSION}|Zlib|libz"
  "protobuf-c|${PROTOBUF_C_VERSION}|BSD-2-Clause|libprotobuf-c"
  "xxHash|${XXHASH_VERSION}|BSD-2-Clause|libxxhash"
  "jansson|${JANSSON_VERSION}|MIT|libjansson"
  "libcyaml|${CYAML_VERSION}|ISC|libcyaml"
  "libyaml|${YAML_VERSION}|MIT|libyaml-0")

set(packages "")
set(relations "")
foreach(row ${sbom_rows})
  string(REPLACE "|" ";" row "${row}")
  list(GET row 0 name)
  list(GET row 1 version)
  list(GET row 2 licence)
  list(GET row 3 libraries)
  string(APPEND packages ",
    {\"SPDXID\": \"SPDXRef-${name}\", \"name\": \"${name}\", \"versionInfo\": \"${version}\",
     \"licenseConcluded\": \"NOASSERTION\", \"licenseDeclared\": \"${licence}\", \"copyrightText\": \"NOASSERTION\",
     \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"comment\": \"${libraries}\"}")
  string(APPEND relations ",
    {\"spdxElementId\": \"SPDXRef-Weft\", \"relationshipType\": \"DYNAMIC_LINK\", \"relatedSpdxElement\": \"SPDXRef-${name}\"}")
endforeach()
# Of SOURCE_DATE_EPOCH, where that is set: the file is then the same in every build.
string(TIMESTAMP created "%Y-%m-%dT%H:%M:%SZ" UTC)
string(SHA256 digest "${PROJECT_VERSION} ${sbom_rows}")
set(sbom ${PROJECT_BINARY_DIR}/share/weft.spdx.json)
file(WRITE ${sbom} "{
  \"spdxVersion\": \"SPDX-2.3\", \"dataLicense\": \"CC0-1.0\", \"SPDXID\": \"SPDXRef-DOCUMENT\",
  \"name\": \"weft-${PROJECT_VERSION}\", \"documentNamespace\": \"https://spdx.org/spdxdocs/weft-${PROJECT_VERSION}-${digest}\",
  \"creationInfo\": {\"created\": \"${created}\", \"creators\": [\"Tool: weft-${PROJECT_VERSION}-cmake\"]},
  \"packages\": [
    {\"SPDXID\": \"SPDXRef-Weft\", \"name\": \"weft\", \"versionInfo\": \"${PROJECT_VERSION}\",
     \"licenseConcluded\": \"NOASSERTION\", \"licenseDeclared\": \"MIT\", \"copyrightText\": \"Copyright (c) 2026 The Weft authors\",
     \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false,
     \"comment\": \"NOTICE tells which library is in which program, and the terms of each.\"}${packages}],
  \"relationships\": [
    {\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", \"relatedSpdxElement\": \"SPDXRef-Weft\"}${relations}]
}
")
install(FILES ${sbom} DESTINATION ${CMAKE_INSTALL_DATADIR}/weft COMPONENT tools)
