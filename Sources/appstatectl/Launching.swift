import AppStateBus
import AppStateContract
import ArgumentParser
import Desktop
import Glibc
import Linux

struct Launch: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Start an application by its desktop entry, or bring it to the front if it is running.",
        discussion: """
            The targets to open are URLs or files; put ./ before the name of a file that begins like a URL. \
            Prints the application's object path.
            """)

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions
    @Flag(help: "Start it in the background; a program that does not support this shows its window.")
    var background = false
    @OptionGroup var wanted: SceneOption
    @Argument(help: "The id of its desktop entry, with or without .desktop.", completion: .desktopEntries)
    var appID: String
    @Argument(help: ArgumentHelp("A URL or file to open.", valueName: "url-or-file"), completion: .file())
    var targets: [String] = []

    func validate() throws {
        try refuseNoID(appID)
        if background, wanted.scene != nil {
            throw ValidationError("A scene is not asked for in the background.")
        }
    }

    func run() throws {
        let urls = try targets.map(Target.url)
        var order = LaunchOrder(
            appID: appID, urls: urls, reason: urls.isEmpty ? .user : .url, isBackground: background,
            scene: wanted.scene)
        let client = try bus.connect()
        let path: String
        do {
            path = try client.launch(order)
        } catch let failure as Failure where failure.verdict == .noSuchApplication {
            // An id may end like the name of a file: org.telegram.desktop.
            guard let id = Self.id(ofFile: appID) else { throw failure }
            order.appID = id
            path = try client.launch(order)
        }
        output.show(application: path)
    }

    /// The id of the desktop entry in a file with this name; nil: it is not the name of a desktop entry's
    /// file.
    private static func id(ofFile name: String) -> String? {
        let suffix = ".desktop"
        return name.hasSuffix(suffix) && name != suffix ? String(name.dropLast(suffix.count)) : nil
    }
}

struct Open: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Open URLs and files with the default applications for their types.",
        discussion: """
            Targets with the same application are opened together. Prints each application's object path.
            """)

    @OptionGroup var bus: BusOptions
    @OptionGroup var output: OutputOptions
    @OptionGroup var wanted: SceneOption
    @Argument(help: ArgumentHelp("A URL or file to open.", valueName: "url-or-file"), completion: .file())
    var targets: [String]

    func run() throws {
        let urls = try targets.map(Target.url)
        var orders: [LaunchOrder] = []
        // If the application for one of them is not found, none is opened.
        for (url, handler) in zip(urls, try Target.handlers(of: urls)) {
            if let index = orders.firstIndex(where: { $0.appID == handler }) {
                orders[index].urls.append(url)
            } else {
                orders.append(
                    LaunchOrder(
                        appID: handler, urls: [url], reason: .url, isBackground: false, scene: wanted.scene))
            }
        }
        let client = try bus.connect()
        var paths: [String] = []
        var first: Failure?
        for order in orders {
            do {
                let path = try client.launch(order)
                paths.append(path)
                if !output.json { Terminal.emit(Line(path)) }
            } catch let failure as Failure where failure.verdict != .notRunning {
                Terminal.warn("appstatectl: \(failure.sentence)")
                first = first ?? failure
            }
        }
        if output.json { Terminal.emit(JSON.array(paths.map(JSON.init(application:)))) }
        if let first { throw ExitCode(first.verdict.rawValue) }
    }
}

/// The scene that a launch asks for.
struct SceneOption: ParsableArguments {
    @Option(
        help: "Which of the application's scenes: new, or a persistent identifier.",
        completion: .list(["new"]))
    var scene: String?
}

/// One call of `Launch`.
struct LaunchOrder {
    /// Why an application is launched.
    enum Reason: String {
        case user
        case url
        case activity
    }

    var appID: String
    var urls: [String]
    let reason: Reason
    let isBackground: Bool
    var scene: String?
    /// What it is to continue, for the reason `activity`.
    var activity: Activity?
}

/// What a user asks to open.
enum Target {
    /// The URL of a target. For a file it is a `file:` URL; relative paths start at the working directory.
    static func url(_ text: String) throws -> String {
        guard !text.isEmpty else { throw ValidationError("The name of a file must not be empty.") }
        guard let scheme = FileURL.scheme(of: text) else {
            return FileURL.url(of: try UserFile.existing(text))
        }
        if scheme != "file" { return text }
        guard let path = FileURL.path(of: text) else {
            throw Failure(
                "\"\(text)\" is not the URL of a file on this machine, such as file:///tmp/a%20b", .usage)
        }
        _ = try UserFile.existing(path)
        return text
    }

    /// The ids of the default applications for URLs.
    static func handlers(of urls: [String]) throws -> [String] {
        do throws(MethodError) {
            return try DesktopEntry.handlers(of: urls)
        } catch {
            throw Failure(error.message)
        }
    }
}

extension Client {
    /// Launches an application, or brings it to the front if it already runs.
    ///
    /// - Returns: the application's object path.
    func launch(_ order: LaunchOrder) throws -> String {
        var options: [(String, Variant)] = [("reason", .string(order.reason.rawValue))]
        if !order.urls.isEmpty { options.append(("urls", .strings(order.urls))) }
        if let activity = order.activity {
            let payload = ["type": Variant.string(activity.type), "info": .dictionary(activity.info)]
            options.append(("payload", .dictionary(payload)))
        }
        if order.isBackground {
            options.append((RegisterOption.launchMode.rawValue, .string(LaunchMode.background.rawValue)))
        }
        options += Self.activationToken
        if let scene = order.scene { options.append((LaunchKey.scene.rawValue, .string(scene))) }
        do {
            let path = try call(ManagerMethod.launch) { message in
                try message.append(order.appID)
                try message.appendDictionary(options)
            }.readObjectPath()
            warnOfHolds(at: path, of: order.appID)
            return path
        } catch let failure as Failure where failure.verdict == .refused {
            let running = try? call(ManagerMethod.getApplicationByID) { try $0.append(order.appID) }
                .readObjectPath()
            if let running { warnOfHolds(at: running, of: order.appID) }
            throw failure
        }
    }

    /// The process that started us may have got a token from the user's click. On X11 a terminal that has used the
    /// token removes only the second variable.
    static var activationToken: [(String, Variant)] {
        let own = Environment["WAYLAND_DISPLAY"].flatMap { _ in Environment["XDG_ACTIVATION_TOKEN"] }
        let token = own ?? Environment["DESKTOP_STARTUP_ID"]
        return token.map { [(LaunchKey.activationToken.rawValue, .string($0))] } ?? []
    }

    /// Reports what keeps a launched application suspended. The daemon lifts only the hold of policy.
    private func warnOfHolds(at path: String, of id: String) {
        guard let sentence = lastingHolds(at: path, of: id, [.request, .signal]) else { return }
        Terminal.warn("appstatectl: \(sentence)")
    }
}
