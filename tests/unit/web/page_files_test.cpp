// The files of the page, and that the metrics beside it are as they were.

#include <zlib.h>

#include "daemon/web/page_assets.h"
#include "tests/unit/matchers.h"
#include "tests/unit/web/page_fixture.h"

namespace gpuperf {
namespace {

using PageFilesTest = testing::PageFixture;

const httplib::Headers kBrowser = {{"Accept", "text/html,*/*"}, {"Accept-Encoding", "gzip"}};

std::string unpack(const std::string& packed) {
  std::string text(1 << 20, '\0');
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);  // gzip
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return text;
}

class RawClient : public httplib::Client {
 public:
  RawClient(const HostPort& address) : httplib::Client(address.host, address.port) {
    set_decompress(false);
  }
};

TEST_F(PageFilesTest, ServesItsFirstFileCompressedAndUnderAStrictPolicy) {
  start_page();
  RawClient client(http_->address());

  const httplib::Result page = client.Get("/ui/", kBrowser);

  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
  EXPECT_EQ(page->get_header_value("Content-Encoding"), "gzip");
  EXPECT_EQ(page->get_header_value("X-Content-Type-Options"), "nosniff");
  const std::string policy = page->get_header_value("Content-Security-Policy");
  EXPECT_THAT(policy, StartsWith("default-src 'none'; script-src 'self'; style-src 'self';"));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(unpack(page->body), StartsWith("<!DOCTYPE html>"));
}

TEST_F(PageFilesTest, ServesEveryFileItHas) {
  start_page();
  RawClient client(http_->address());

  for (const PageAsset& asset : list_page_assets()) {
    const httplib::Result file = client.Get("/ui/" + std::string(asset.path), kBrowser);
    ASSERT_TRUE(file) << asset.path;
    EXPECT_EQ(file->status, 200) << asset.path;
    EXPECT_EQ(file->body, asset.gzip_bytes) << asset.path;
    EXPECT_EQ(file->get_header_value("Content-Type"), asset.media_type) << asset.path;
  }
}

TEST_F(PageFilesTest, LoadsNothingFromElsewhere) {
  for (const PageAsset& asset : list_page_assets()) {
    if (asset.path.starts_with("speedscope/")) continue;  // not ours; its policy keeps it here
    const std::string text = unpack(std::string(asset.gzip_bytes));
    EXPECT_THAT(text, Not(HasSubstr("src=\"http"))) << asset.path;
    EXPECT_THAT(text, Not(HasSubstr("href=\"http"))) << asset.path;
    EXPECT_THAT(text, Not(HasSubstr("url(http"))) << asset.path;
    EXPECT_THAT(text, Not(HasSubstr("innerHTML"))) << asset.path;
  }
}

TEST_F(PageFilesTest, SendsBrowsersFromTheRootToThePage) {
  start_page();

  const httplib::Response response = get("/", kBrowser);

  EXPECT_EQ(response.status, 302);
  EXPECT_EQ(response.get_header_value("Location"), "/ui/");
}

TEST_F(PageFilesTest, NamesThePageToOthersAtTheRoot) {
  start_page();

  EXPECT_THAT(get("/").body, HasSubstr("/ui/"));
}

TEST_F(PageFilesTest, AnswersHeadWithoutABody) {
  start_page();

  const httplib::Result head = client_->Head("/ui/", kBrowser);

  ASSERT_TRUE(head);
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->body, "");
}

TEST_F(PageFilesTest, HasNoFilesButItsOwn) {
  start_page();

  for (const char* path :
       {"/ui/nothing", "/ui/../page.token", "/ui/%2e%2e/page.token", "/ui/..", "/ui//etc/passwd"}) {
    EXPECT_EQ(get(path, kBrowser).status, 404) << path;
  }
  EXPECT_EQ(get("/ui/" + std::string(5000, 'a'), kBrowser).status, 404);
}

TEST_F(PageFilesTest, SaysThatItsFilesAreCompressed) {
  start_page();
  RawClient client(http_->address());

  const httplib::Result page = client.Get("/ui/", {{"Accept-Encoding", "identity"}});

  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 406);
}

TEST_F(PageFilesTest, IsNotThereWhereItIsNotWanted) {
  start();
  auto http =
      HttpServer::start("127.0.0.1:0", {.metrics = metrics_, .board = board_, .drops = drops_});
  ASSERT_TRUE(http.ok()) << http.status();
  httplib::Client client((*http)->address().host, (*http)->address().port);

  EXPECT_EQ(client.Get("/ui/", kBrowser)->status, 404);
  EXPECT_EQ(client.Get("/api/v1/status")->status, 404);
  EXPECT_EQ(client.Get("/", kBrowser)->status, 200);
  EXPECT_THAT(client.Get("/")->body, Not(HasSubstr("/ui/")));
}

}  // namespace
}  // namespace gpuperf
