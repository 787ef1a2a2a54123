// What the page may ask, who may ask it, and what is answered.

#include <google/protobuf/util/json_util.h>

#include "tests/unit/matchers.h"
#include "tests/unit/web/page_fixture.h"

namespace gpuperf {
namespace {

using PageApiTest = testing::PageFixture;

TEST_F(PageApiTest, AnswersWhatTheApiAnswers) {
  for (const char* name : {"cudaMalloc", "cudaFree", "cudaMemcpy"}) {
    const uint32_t id = builder_.add_function({.category = "cuda", .name = name});
    builder_.add_series(id, {.comm = "train"}, testing::make_totals({1000, 2000}));
  }
  board_.publish(builder_.build());
  start_page();

  const httplib::Response response = get("/api/v1/functions?sort=calls&page.limit=2", reader());

  auto told = call(&v1::Observe::Stub::ListFunctions, "sort: 'calls' page { limit: 2 }");
  v1::ListFunctionsResponse answer;
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.get_header_value("Content-Type"), "application/json; charset=utf-8");
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(response.body, &answer).ok());
  // Sealed anew for each answer.
  EXPECT_NE(answer.next_page_token(), "");
  answer.clear_next_page_token();
  told.clear_next_page_token();
  EXPECT_EQ(answer.DebugString(), told.DebugString());
  EXPECT_EQ(answer.functions_size(), 2);
  EXPECT_THAT(response.body, HasSubstr("\"p99_ns\":"));
}

TEST_F(PageApiTest, AnswersEveryQuestionItLists) {
  board_.publish(builder_.build());
  start_page();

  for (const ApiCall& row : list_api_calls()) {
    const std::string path = "/api/v1/" + std::string(row.path);
    const httplib::Response response =
        row.access == Access::kRead ? get(path, reader()) : post(path, "{}", admin());
    // Those of one thing say that there is none; a demand must say for how long.
    EXPECT_THAT(response.status, ::testing::AnyOf(200, 400, 404, 409)) << path << response.body;
  }
}

TEST_F(PageApiTest, TellsNothingWithoutAToken) {
  start_page();

  for (const ApiCall& row : list_api_calls()) {
    const std::string path = "/api/v1/" + std::string(row.path);
    for (const httplib::Headers& headers : {httplib::Headers(), bearer(std::string(64, '0'))}) {
      const httplib::Response response =
          row.access == Access::kRead ? get(path, headers) : post(path, "{}", headers);
      EXPECT_EQ(response.status, 401) << path;
      EXPECT_THAT(response.body, HasSubstr(folder_ / "run/page.token")) << path;
    }
  }
  EXPECT_EQ(post("/api/v1/view_link", "{}").status, 401);
  EXPECT_THAT(port_.asked(), IsEmpty());
}

TEST_F(PageApiTest, ChangesNothingForWhoMayOnlyRead) {
  start_page();

  const httplib::Response response =
      post("/api/v1/start_capture", "{\"duration_ms\":1000}", reader());

  EXPECT_EQ(response.status, 403);
  EXPECT_THAT(response.body, HasSubstr(folder_ / "run/page-admin.token"));
  EXPECT_THAT(port_.asked(), IsEmpty());
}

TEST_F(PageApiTest, SaysWhatATokenMayDo) {
  start_page();

  EXPECT_THAT(
      get("/api/v1/access", reader()).body,
      AllOf(HasSubstr("\"may_change\":false"), HasSubstr(folder_ / "run/page-admin.token")));
  EXPECT_THAT(get("/api/v1/access", admin()).body, HasSubstr("\"may_change\":true"));
  EXPECT_EQ(get("/api/v1/access", bearer(std::string(64, '0'))).status, 401);
}

TEST_F(PageApiTest, ChangesForWhoHasTheOtherToken) {
  start_page();

  const httplib::Response response =
      post("/api/v1/start_capture", R"({"duration_ms":1000,"target":{"pid":71}})", admin());

  EXPECT_EQ(response.status, 200) << response.body;
  ASSERT_THAT(port_.asked(), ElementsAre("start"));
  EXPECT_EQ(port_.capture_orders()[0].target.pid, 71u);
}

TEST_F(PageApiTest, ReadsForWhoMayChange) {
  start_page();

  EXPECT_EQ(get("/api/v1/status", admin()).status, 200);
}

TEST_F(PageApiTest, ChangesNothingByGet) {
  start_page();

  EXPECT_EQ(get("/api/v1/freeze_recorder", admin()).status, 404);
  EXPECT_THAT(port_.asked(), IsEmpty());
}

TEST_F(PageApiTest, SaysWhatIsWrongWithAQuestion) {
  start_page();

  const httplib::Response unknown = get("/api/v1/functions?colour=red", reader());
  const httplib::Response sort = get("/api/v1/functions?sort=colour", reader());
  const httplib::Response body = post("/api/v1/start_capture", "{\"colour\":1}", admin());

  EXPECT_EQ(unknown.status, 400);
  EXPECT_THAT(unknown.body, HasSubstr("colour"));
  EXPECT_EQ(sort.status, 400);
  EXPECT_EQ(body.status, 400);
  EXPECT_THAT(port_.asked(), IsEmpty());
}

TEST_F(PageApiTest, RefusesALargeBody) {
  start_page();

  const httplib::Response response =
      post("/api/v1/start_capture", std::string(100'000, ' '), admin());

  EXPECT_EQ(response.status, 413);
}

TEST_F(PageApiTest, AnswersNobodyWhoComesByAnotherName) {
  start_page();
  httplib::Headers headers = reader();
  headers.emplace("Host", "rebound.example:9465");

  EXPECT_EQ(get("/api/v1/status", headers).status, 421);
}

TEST_F(PageApiTest, LetsNoOtherSiteIn) {
  start_page();
  httplib::Headers headers = reader();
  headers.emplace("Origin", "https://other.example");

  const httplib::Response response = get("/api/v1/status", headers);
  const httplib::Result asked = client_->Options("/api/v1/status", headers);

  EXPECT_FALSE(response.has_header("Access-Control-Allow-Origin"));
  EXPECT_EQ(response.get_header_value("Cross-Origin-Resource-Policy"), "same-origin");
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->status, 404);
  EXPECT_FALSE(asked->has_header("Access-Control-Allow-Headers"));
}

TEST_F(PageApiTest, SaysThatTheApiIsNotThere) {
  start_page();
  page_->set_api(nullptr, nullptr);

  EXPECT_EQ(get("/api/v1/status", reader()).status, 503);
  EXPECT_EQ(get("/metrics").status, 200);
}

TEST_F(PageApiTest, OpensAFormOfACaptureByItsAddressAlone) {
  start_page();

  const httplib::Response link =
      post("/api/v1/view_link", R"({"id":"7","format":"flamegraph"})", reader());
  ASSERT_EQ(link.status, 200) << link.body;
  const std::string path = link.body.substr(link.body.find("/view/"), 6 + 64);
  const httplib::Response view = get(path);

  // No captures are stored here: the API's own answer shows that it was asked.
  EXPECT_EQ(view.status, 409);
  EXPECT_THAT(view.body, HasSubstr("capture"));
  EXPECT_THAT(view.get_header_value("Content-Security-Policy"), HasSubstr("sandbox allow-scripts"));
}

TEST_F(PageApiTest, OpensNoAddressThatWasNotGiven) {
  start_page();

  EXPECT_EQ(get("/view/" + std::string(64, 'a')).status, 404);
  EXPECT_EQ(get("/view/7").status, 404);
}

}  // namespace
}  // namespace gpuperf
