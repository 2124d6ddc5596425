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
