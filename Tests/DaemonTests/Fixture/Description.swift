import Foundation
import TestSupport

#if canImport(FoundationXML)
    import FoundationXML
#endif

/// The interfaces of an introspection text, each member as one line, sorted. Two texts must agree on this.
final class Description: NSObject, XMLParserDelegate {
    private var interfaces: [String: [String]] = [:]
    private var interface = ""
    private var member = ""
    private var arguments: [String] = []
    private var annotations: [String] = []

    /// The members of an interface, as its file in dbus/ describes them.
    static func documented(_ interface: String) throws -> [String] {
        let text = try String(contentsOfFile: "\(Programs.root)/dbus/\(interface).xml", encoding: .utf8)
        guard let members = try interfaces(in: text)[interface] else {
            throw TestFailure("\(interface).xml does not describe \(interface)")
        }
        return members
    }

    /// A method as its file in dbus/ describes it.
    struct Method {
        let name: String
        /// The name and the type of each argument that a caller passes.
        let arguments: [(name: String, type: String)]
        /// The comment.
        let text: String

        /// A call with valid arguments in the words of AppActor, with a pidfd of this process for a descriptor; nil:
        /// it has no word for one of the types.
        func words(pid: Int32) -> String? {
            var words = [name]
            for (argument, type) in arguments {
                switch (name, argument, type) {
                case ("BeginContinuedTask", "options", _): words.append("{total=t:1}")
                case ("ScheduleLaunch", "type", _): words.append("s:network")
                case (_, _, "as"): words.append("as:https://example.org")
                case (_, _, "a{sv}"): words.append("{}")
                case (_, _, "a(us)"): words.append("a(us):\(pid)=audio")
                case (_, _, "h"): words.append("h:\(pid)")
                case (_, _, "b"): words.append("b:true")
                case (_, _, "s"), (_, _, "ay"): words.append("\(type):x")
                case (_, _, "t"), (_, _, "u"): words.append("\(type):1")
                default: return nil
                }
            }
            return words.joined(separator: " ")
        }
    }

    static func methods(_ interface: String) throws -> [Method] {
        let text = try String(contentsOfFile: "\(Programs.root)/dbus/\(interface).xml", encoding: .utf8)
        return try documented(interface).filter { $0.hasPrefix("method ") }.map { line in
            let parts = line.dropFirst("method ".count).split(separator: "(", maxSplits: 1)
            let name = String(parts[0])
            let words = parts[1].prefix(upTo: parts[1].lastIndex(of: ")") ?? parts[1].endIndex)
                .components(separatedBy: ", ").map { $0.split(separator: " ").map(String.init) }
            let arguments = words.filter { $0.last == "in" }.map {
                (name: String($0[0].dropFirst()), type: $0[1])
            }
            return Method(
                name: name, arguments: arguments, text: comment(on: name, "method", in: text) ?? "")
        }
    }

    /// The comment right before an element; nil if it does not begin with the element's name.
    static func comment(on name: String, _ kind: String, in text: String) -> String? {
        guard let element = text.range(of: "<\(kind) name=\"\(name)\""),
            let begin = text.range(
                of: "<!--", options: .backwards, range: text.startIndex..<element.lowerBound),
            let end = text.range(of: "-->", range: begin.upperBound..<element.lowerBound),
            text[end.upperBound..<element.lowerBound].allSatisfy(\.isWhitespace)
        else { return nil }
        let comment = text[begin.upperBound..<end.lowerBound]
        return comment.trimmingCharacters(in: .whitespacesAndNewlines).hasPrefix(name + ":")
            ? String(comment) : nil
    }

    static func interfaces(in text: String) throws -> [String: [String]] {
        let parser = XMLParser(data: Data(text.utf8))
        let description = Description()
        parser.delegate = description
        guard parser.parse() else { throw TestFailure("bad XML: \(String(describing: parser.parserError))") }
        return description.interfaces.mapValues { $0.sorted() }
    }

    func parser(
        _ parser: XMLParser, didStartElement element: String, namespaceURI: String?,
        qualifiedName: String?, attributes: [String: String] = [:]
    ) {
        let name = attributes["name"] ?? ""
        switch element {
        case "interface":
            interface = name
            interfaces[name] = []
        case "method", "signal", "property":
            member = "\(element) \(name)"
            if element == "property" {
                member += " \(attributes["type"] ?? "") \(attributes["access"] ?? "")"
            }
            arguments = []
            annotations = []
        case "arg":
            let direction = member.hasPrefix("signal") ? "" : " " + (attributes["direction"] ?? "in")
            arguments.append("@\(name) \(attributes["type"] ?? "")\(direction)")
        case "annotation":
            let value = attributes["value"] ?? ""
            // The default where the annotation is missing (D-Bus specification, "Introspection Data Format").
            if name == "org.freedesktop.DBus.Property.EmitsChangedSignal", value == "true" { return }
            annotations.append("\(name)=\(value)")
        default:
            break
        }
    }

    func parser(
        _ parser: XMLParser, didEndElement element: String, namespaceURI: String?, qualifiedName: String?
    ) {
        guard ["method", "signal", "property"].contains(element) else { return }
        interfaces[interface, default: []].append(
            "\(member)(\(arguments.joined(separator: ", "))) \(annotations.sorted().joined(separator: " "))")
    }
}
