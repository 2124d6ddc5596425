import AppState
import AppStateContract
import Testing

/// The URLs of files, as `application(_:open:options:)` receives them.
@Suite("File URLs")
struct FileURLTests {
    private typealias Shared = AppStateContract.FileURL
    private typealias Exported = AppState.FileURL

    @Test("file URLs and paths are converted into each other")
    func urls() {
        for convert in [Shared.url(of:), Exported.url(of:)] {
            #expect(convert("/a b/é%?#;") == "file:///a%20b/%C3%A9%25%3F%23%3B")
        }
        for convert in [Shared.path(of:), Exported.path(of:)] {
            #expect(convert("file:///a%20b/%C3%A9%25%3F%23%3B") == "/a b/é%?#;")
            #expect(convert("FILE:/a") == "/a")
            #expect(convert("/a b") == "/a b")
            for url in [
                "file:a", "file:///%", "file:///%4", "file:///%zz", "file:///a%00", "file://h/a", "http://a",
            ] {
                #expect(convert(url) == nil, "\(url)")
            }
        }
    }

    @Test("the scheme of a URL")
    func schemes() {
        #expect(Shared.scheme(of: "X-a+b.1:c") == "x-a+b.1")
        for text in ["", ":a", "1:b", "a b:c", "abc", "/a:b"] { #expect(Shared.scheme(of: text) == nil) }
    }
}
