import CXCB

/// The atoms that matter (Extended Window Manager Hints 1.5; ICCCM for WM_CLASS and WM_NAME).
enum AtomName: String, CaseIterable {
    // On the root window.
    case supportingWMCheck = "_NET_SUPPORTING_WM_CHECK"
    // Read before those that count only if it names them.
    case supported = "_NET_SUPPORTED"
    case clientList = "_NET_CLIENT_LIST"
    case activeWindow = "_NET_ACTIVE_WINDOW"
    case currentDesktop = "_NET_CURRENT_DESKTOP"
    case showingDesktop = "_NET_SHOWING_DESKTOP"
    // On each window.
    case state = "_NET_WM_STATE"
    case desktop = "_NET_WM_DESKTOP"
    case type = "_NET_WM_WINDOW_TYPE"
    case netName = "_NET_WM_NAME"
    case name = "WM_NAME"
    case windowClass = "WM_CLASS"
    // Messages.
    case changeState = "WM_CHANGE_STATE"
    // Values.
    case hidden = "_NET_WM_STATE_HIDDEN"
    case typeDesktop = "_NET_WM_WINDOW_TYPE_DESKTOP"
    case typeDock = "_NET_WM_WINDOW_TYPE_DOCK"

    static let ofRoot: Set<AtomName> = [
        .supportingWMCheck, .supported, .clientList, .activeWindow, .currentDesktop, .showingDesktop,
    ]
    static let ofWindow: Set<AtomName> = [.state, .desktop, .type, .netName, .name, .windowClass]

    /// How much of the property is read, in units of four bytes.
    var words: UInt32 {
        switch self {
        case .clientList: UInt32(ObservedWindow.mostWindows)
        // A list of atoms, of which some window managers have more than a hundred.
        case .supported: 512
        // A list of atoms, of which there are a dozen or two.
        case .state, .type: 64
        case .netName, .name: UInt32(ObservedWindow.longestText) / 4 + 1
        // Two of them.
        case .windowClass: UInt32(ObservedWindow.longestText) / 2 + 1
        default: 1
        }
    }
}

/// The numbers of these atoms on this server.
struct Atoms {
    private let atoms: [AtomName: xcb_atom_t]
    private let names: [xcb_atom_t: AtomName]

    init(_ connection: XConnection) {
        let all = AtomName.allCases
        let numbers = connection.atoms(all.map(\.rawValue))
        atoms = Dictionary(uniqueKeysWithValues: zip(all, numbers))
        names = Dictionary(zip(numbers, all)) { first, _ in first }
    }

    subscript(_ name: AtomName) -> xcb_atom_t { atoms[name] ?? xcb_atom_t(XCB_NONE) }

    /// Nil for atoms that do not matter.
    func name(of atom: xcb_atom_t) -> AtomName? { names[atom] }
}
